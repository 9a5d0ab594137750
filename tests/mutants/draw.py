"""Mutants of a source file: every small fault that its syntax tree offers, as a replaced stretch of text."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
# Text for people: a fault in it is read, not tested.
MESSAGES = {"warn", "print", "say", "log", "debug", "info", "warning"}
COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match, ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Mutant:
    """One small fault: the text between two places of a file, and what stands there instead."""

    file: str
    line: int
    block: int  # first line of the run of statements it belongs to; 0 where it runs at import
    kind: str
    start: int  # offsets in the file's bytes
    end: int
    before: str
    after: str

    def apply(self, text: bytes) -> bytes:
        return text[: self.start] + self.after.encode() + text[self.end :]


def mutants(file: str, text: str) -> list[Mutant]:
    """Return all mutants of a file, in the order of its lines."""
    raw = text.encode()
    starts = [0]
    for line in raw.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = parse(text)
    drawn: dict[tuple[int, int, str], Mutant] = {}
    for statement, block in statements(tree):
        for node, kind, replacement in _changes(statement):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            before = raw[start:end].decode()
            mutant = Mutant(file, node.lineno, block, kind, start, end, before, replacement)
            drawn.setdefault((start, end, replacement), mutant)
    return sorted(drawn.values(), key=lambda one: (one.start, one.end, one.after))


def parse(text: str) -> ast.Module:
    """Return the syntax tree, in which functions that are compiled to machine code are marked."""
    tree = ast.parse(text)
    compiled = {
        argument.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "compiled"
        for argument in node.args
        if isinstance(argument, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in compiled:
            node.type_comment = "compiled"
    return tree


def statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, int]]:
    """Yield every statement with the first line of its block, 0 for what runs at import."""
    yield from _statements(tree.body, inside=False)


def _statements(body: list[ast.stmt], inside: bool) -> Iterator[tuple[ast.stmt, int]]:
    for statement, block in blocks(body):
        # What a function's header computes belongs to the function, though it runs when that is defined.
        header = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        yield statement, first_line(statement) if header else block if inside else 0
        for nested, in_function in bodies(statement, inside):
            yield from _statements(nested, in_function)


def blocks(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, int]]:
    """Yield the statements of a body with their block: a new one begins after what may have left the body."""
    block = 0
    for statement in body[has_docstring(body) :]:
        block = block or statement.lineno
        yield statement, block
        if _may_leave(statement):
            block = 0


def bodies(statement: ast.stmt, inside: bool) -> Iterator[tuple[list[ast.stmt], bool]]:
    """Yield the bodies within a statement, each with whether it is a function's; kernels are left out."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        if not any("jit" in ast.unparse(decorator) for decorator in statement.decorator_list):
            yield statement.body, statement.type_comment != "compiled"  # it cannot note what it enters
        return
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
        return
    inside = inside and not isinstance(statement, ast.ClassDef)
    for field in ("body", "orelse", "finalbody"):
        if nested := getattr(statement, field, None):
            yield nested, inside
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body, inside


def first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the line of the first statement that a function executes, 0 if it has none."""
    body = function.body[has_docstring(function.body) :]
    return body[0].lineno if body else 0


def has_docstring(body: list[ast.stmt]) -> bool:
    """Return whether a body begins with a docstring, or is an ellipsis."""
    return bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)


def _may_leave(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.Match):
        return False
    return any(
        isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue) for node in ast.walk(statement)
    )


Change = tuple[ast.stmt | ast.expr, str, str]  # what is replaced, the kind of the fault, the new text


def _changes(statement: ast.stmt) -> Iterator[Change]:
    """Yield the faults of a statement, those of the bodies within it left out."""
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
        return
    if isinstance(statement, ast.Raise | ast.AugAssign | ast.Break | ast.Continue):
        yield statement, "statement removed", "pass"
    elif isinstance(statement, ast.Assign):
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets):
            yield statement, "statement removed", "pass"
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and not _speaks(statement.value)
    ):
        yield statement, "statement removed", "pass"
    elif isinstance(statement, ast.If | ast.While) and not isinstance(statement.test, ast.Compare):
        yield statement.test, "condition negated", f"not ({ast.unparse(statement.test)})"
    for expression in _expressions(statement):
        yield from _within(expression)


def _expressions(statement: ast.stmt) -> Iterable[ast.expr]:
    """Return what a statement itself computes: no annotation, decorator, message or list of public names."""
    match statement:
        case ast.Raise() | ast.Assert() | ast.ImportFrom() | ast.Import() | ast.Global() | ast.Nonlocal():
            return []
        case ast.FunctionDef(args=inputs) | ast.AsyncFunctionDef(args=inputs):
            return [*inputs.defaults, *(default for default in inputs.kw_defaults if default is not None)]
        case ast.ClassDef():
            return []
        case ast.AnnAssign(value=value):
            return [] if value is None else [value]
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return []
        case ast.If(test=test) | ast.While(test=test):
            return [test]
        case ast.For(iter=iterated):
            return [iterated]
        case ast.With(items=items):
            return [item.context_expr for item in items]
        case ast.Match(subject=subject):
            return [subject]
        case ast.Try():
            return []
    return [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.expr)]


def _speaks(call: ast.Call) -> bool:
    """Return whether a call only writes text for people."""
    name = call.func
    return (name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) in MESSAGES


def _within(node: ast.expr) -> Iterator[Change]:
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and _speaks(node)):
        return
    yield from _of_expression(node)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "func") and isinstance(value, ast.Name):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword):
                child = child.value
            if isinstance(child, ast.comprehension):
                for part in (child.iter, *child.ifs):
                    yield from _within(part)
            elif isinstance(child, ast.expr):
                yield from _within(child)


def _of_expression(node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                for other in COMPARISONS[type(operator)]:
                    changed = [*ops[:place], other(), *ops[place + 1 :]]
                    yield node, "comparison", _text(node, ops=changed)
        case ast.BinOp(op=operator, left=left) if type(operator) in OPERATORS and not _is_string(left):
            yield node, "operator", _text(node, op=OPERATORS[type(operator)]())
        case ast.BoolOp(op=operator):
            yield node, "and/or", _text(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield node, "sign or not removed", f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield node, "constant", str(not value)
        case ast.Constant(value=int() as value):
            yield node, "number", str(value + 1)
            if value > 1:
                yield node, "number", str(value - 1)
        case ast.Constant(value=float() as value):
            yield node, "number", repr(value * 1.5) if value else "1.0"
        case ast.IfExp(body=body, orelse=other):
            yield node, "branches swapped", _text(node, body=other, orelse=body)
        case ast.Call(func=called, args=inputs, keywords=named):
            if isinstance(called, ast.Name) and called.id in NAMES:
                yield node, "min/max, any/all", _text(node, func=ast.Name(NAMES[called.id], ast.Load()))
            for place in range(len(inputs) - 1):
                pair = inputs[place : place + 2]
                if not any(isinstance(one, ast.Starred) for one in pair):
                    swapped = [*inputs[:place], pair[1], pair[0], *inputs[place + 2 :]]
                    yield node, "arguments swapped", _text(node, args=swapped)
            for place, keyword in enumerate(named):
                if keyword.arg is not None:
                    yield node, "keyword removed", _text(node, keywords=[*named[:place], *named[place + 1 :]])


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _text(node: ast.expr, **changes: object) -> str:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    text = ast.unparse(changed)
    # A product in place of a sum, say, must not bind more tightly than what stood there.
    return text if isinstance(node, ast.Call) else f"({text})"
