"""YAML as plain values, with the line of everything in it.

A subset on purpose: `yes`, `off` or `1:30` are texts and not the booleans and numbers of YAML 1.1, dates are texts,
tags are refused, a name given twice is an error. Places are called as in every problem: `pools[gpt-4o].queue.size`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from gateway.routing.options import Problem

_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_TAG = "tag:yaml.org,2002:"
_MOST_NODES = 200_000  # of a file; an alias counts as often as it is used
_DEEPEST = 20


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # every plain word is a text here; `_scalar` says what else it may be


@dataclass(slots=True)
class Tree:
    """`value` is made of dict, list, str, int, float, bool and None. `lines` go by path."""

    value: Any = None
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    nodes: int = 0

    def line_of(self, path: str) -> int | None:
        """The line of the place, or of the nearest thing around it that is in the file."""
        around = [at for at in self.lines if at and is_within(path, at)]
        return self.lines[max(around, key=len)] if around else None


def is_within(path: str, other: str) -> bool:
    """Whether the first place is the second, or inside it."""
    return path.startswith(other) and path[len(other) : len(other) + 1] in ("", ".", "[")


def read_tree(text: str) -> Tree:
    """The one document of the text; what is wrong with it is in `problems`."""
    tree = Tree()
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        tree.lines["file"] = mark.line + 1 if mark else 1
        tree.problems.append(Problem("file", f"not YAML: {error.problem or error.context}"))
    except (yaml.YAMLError, RecursionError) as error:
        tree.problems.append(Problem("file", f"not YAML: {type(error).__name__}"))
    else:
        tree.value = _value(tree, root, "", 0) if root is not None else None
    return tree


def _value(tree: Tree, node: yaml.Node, path: str, depth: int) -> Any:
    tree.nodes += 1
    tree.lines.setdefault(path, node.start_mark.line + 1)
    if depth > _DEEPEST or tree.nodes > _MOST_NODES:
        if tree.nodes <= _MOST_NODES + 1:
            tree.problems.append(Problem(path, "nested too deeply, or too many values"))
        return None
    if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
        return _mapping(tree, node, path, depth)
    if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
        return _sequence(tree, node, path, depth)
    if isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}str":
        return _scalar(tree, node, path)
    tree.problems.append(Problem(path, f"the tag {node.tag} has no meaning here"))
    return None


def _mapping(tree: Tree, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, inner in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "?"
        at = f"{path}.{name}" if path else name
        if name in values:
            tree.problems.append(Problem(at, f"given twice, first on line {tree.lines[at]}"))
            tree.lines[at] = key.start_mark.line + 1
            continue
        tree.lines[at] = key.start_mark.line + 1
        values[name] = _value(tree, inner, at, depth + 1)
    return values


def _sequence(tree: Tree, node: yaml.SequenceNode, path: str, depth: int) -> list[Any]:
    values, taken = [], set()
    for position, inner in enumerate(node.value):
        label = _name(inner) or position
        label = position if label in taken else label
        taken.add(label)
        values.append(_value(tree, inner, f"{path}[{label}]", depth + 1))
    return values


def _name(node: yaml.Node) -> str | None:
    """What an entry of a list is called, where it has a name."""
    names: dict[str, str] = {}
    if isinstance(node, yaml.MappingNode):
        pairs = [(key, inner) for key, inner in node.value if isinstance(inner, yaml.ScalarNode)]
        names = {key.value: inner.value for key, inner in pairs if isinstance(key, yaml.ScalarNode)}
    return names.get("model") or names.get("name") or names.get("id")


def _scalar(tree: Tree, node: yaml.ScalarNode, path: str) -> Any:
    text: str = node.value
    if not text.isprintable():
        tree.problems.append(Problem(path, f"{text[:40]!r} has characters that cannot be printed"))
        return text.encode("ascii", "replace").decode()
    if node.style:  # quoted, or a block of text
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text) and len(text) < 20:
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) and math.isfinite(float(text)) else text
