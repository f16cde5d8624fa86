// Buttons with data-copy="<id>" copy the value of that input; over plain HTTP, where browsers give no clipboard, they select it.
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const input = document.getElementById(button.dataset.copy);
    input.select();
    try {
      await navigator.clipboard.writeText(input.value);
    } catch {
      if (!document.execCommand("copy")) return;
    }
    button.textContent = "Copied";
  });
}
