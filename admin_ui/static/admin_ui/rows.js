// Rows of inputs: add, move and remove them; show a condition when it is chosen, and empty it when it is taken away.
const rowActions = {
  add(rows) {
    const list = rows.querySelector(".igw-rows-list");
    list.append(rows.querySelector("template").content.cloneNode(true));
    list.lastElementChild.querySelector("input").focus();
  },
  up(rows, row) {
    if (row.previousElementSibling) row.previousElementSibling.before(row);
  },
  down(rows, row) {
    if (row.nextElementSibling) row.nextElementSibling.after(row);
  },
  remove(rows, row) {
    row.remove();
  },
  clear(rows, row, button) {
    const condition = button.closest("[data-condition]");
    condition.querySelector("input, select").value = "";
    condition.hidden = true;
  },
};

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-row-action]");
  if (!button) return;
  const rows = button.closest("[data-rows]");
  rowActions[button.dataset.rowAction](rows, button.closest(".igw-row"), button);
  if (button.isConnected) button.focus();
  rows.dispatchEvent(new Event("change", { bubbles: true })); // the page warns before unsaved changes are left
});

document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-add-condition]")) return;
  const chosen = event.target.value;
  event.target.value = "";
  const condition = event.target.closest(".igw-row").querySelector(`[data-condition="${chosen}"]`);
  if (!condition) return;
  condition.hidden = false;
  const input = condition.querySelector("input, select");
  if (input.matches("select") && !input.value) input.value = input.options[1].value;
  input.focus();
});

// A member of a rule is one of the members that the form has now.
document.addEventListener("focusin", (event) => {
  const datalist = event.target.list;
  if (!datalist?.dataset.suggestsFrom) return;
  const inputs = [...document.getElementsByName(datalist.dataset.suggestsFrom)];
  datalist.replaceChildren(...inputs.filter((input) => input.value).map((input) => new Option("", input.value)));
});
