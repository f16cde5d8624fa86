"""runtime/yamltree: plain values with lines, out of a subset of YAML."""

from __future__ import annotations

import pytest

from gateway.runtime.yamltree import read_tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: [-2, 1.5, 1e3, .5, +3]", {"a": [-2, 1.5, 1000.0, 0.5, 3]}),
        ("a: [true, false, null, ~, ]", {"a": [True, False, None, None]}),
        ("a:", {"a": None}),
        (
            "a: [yes, off, 1:30, 0x10, 010, 2027-01-01, .inf, 1e999]",
            {"a": ["yes", "off", "1:30", "0x10", "010", "2027-01-01", ".inf", "1e999"]},
        ),
        ("a: ['1', \"true\"]", {"a": ["1", "true"]}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("", None),
        ("- 1", [1]),
    ],
)
def test_tree_reads_plain_values(text: str, value: object) -> None:
    tree = read_tree(text)
    assert (tree.value, tree.problems) == (value, [])


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("a: 1\nb: 2\na: 3", "a: given twice, first on line 1", 3),
        ("a:\n  b: !!python/object:os.system x", "a.b: the tag tag:yaml.org,2002:python/object:os.system has no", 2),
        ("a: !!int 5", "a: the tag tag:yaml.org,2002:int has no meaning here", 1),
        ("a: !mine {}", "a: the tag !mine has no meaning here", 1),
        ("a: [1\nb: 2", "file: not YAML: expected ',' or ']', but got ':'", 2),
        ('a: "x\\0y"', "a: 'x\\x00y' has characters that cannot be printed", 1),
        ('a: "\\ud800"', "a: '\\ud800' has characters that cannot be printed", 1),
        ("a: &x [*x]", "nested too deeply, or too many values", 1),
        ("a: " + "[" * 5000, "file: not YAML: RecursionError", None),
        ("a: 1\n--- \nb: 2", "file: not YAML: but found another document", 2),
        ("a: \x00", "file: not YAML: ReaderError", None),
    ],
)
def test_tree_tells_what_it_cannot_read(text: str, problem: str, line: int | None) -> None:
    tree = read_tree(text)
    (found,) = tree.problems
    assert problem in str(found)
    assert tree.line_of(found.path) == line


def test_tree_of_multiplying_aliases_ends_early() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert [problem.message for problem in read_tree("\n".join(rows)).problems] == [
        "nested too deeply, or too many values"
    ]


def test_lines_go_by_the_names_of_objects() -> None:
    tree = read_tree(
        "pools:\n  - model: gpt-4.1\n    queue:\n      size: 1\n    workers:\n      - {name: w1}\n  - {model: x}\n"
    )
    paths = [
        "pools",
        "pools[gpt-4.1]",
        "pools[gpt-4.1].queue.size",
        "pools[gpt-4.1].workers[w1].url",
        "pools[x].model",
        "other",
    ]
    assert [tree.line_of(path) for path in paths] == [1, 2, 4, 6, 7, None]
