"""The functions of Kubernetes, and what the text of a rule selects."""

import pytest

from trainmaster.devcluster.apiserver.schema.cel.env import compile_program
from trainmaster.devcluster.apiserver.schema.cel.parser import find_selections
from trainmaster.devcluster.apiserver.schema.cel.program import CompilationFailed, EvaluationFailed

TRUE = [
    "[1, 2, 2].isSorted() && !['b', 'a'].isSorted()",
    "[1, 2, 3].sum() == 6 && [1.5, 2.0].sum() == 3.5",
    "[3, 1, 2].min() == 1 && [3, 1, 2].max() == 3",
    "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
    "'abcab'.indexOf('b') == 1 && 'abcab'.lastIndexOf('b') == 4",
    "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
    "'1 2 3'.findAll('[0-9]') == ['1', '2', '3'] && '1 2 3'.findAll('[0-9]', 2) == ['1', '2']",
    "sets.contains([1, 2], [2]) && !sets.contains([1], [2])",
    "sets.equivalent([1, 2, 2], [2, 1]) && sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2])",
    "isQuantity('1.5Gi') && !isQuantity('1.5 Gi')",
    "quantity('1Ki') == quantity('1024') && quantity('50m').compareTo(quantity('0.05')) == 0",
    "quantity('1').add(quantity('500m')) == quantity('1.5') && quantity('2').sub(3).sign() == -1",
    "quantity('2').isLessThan(quantity('3')) && quantity('3').isGreaterThan(quantity('2'))",
    "quantity('2k').isInteger() && quantity('2k').asInteger() == 2000 && !quantity('1m').isInteger()",
    "quantity('1500m').asApproximateFloat() == 1.5",
    "'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
    "' Ab '.trim().lowerAscii() == 'ab' && 'ab'.upperAscii() == 'AB' && 'aXa'.replace('a', 'b') == 'bXb'",
    "'abc'.substring(1) == 'bc' && 'abc'.substring(1, 2) == 'b' && 'abc'.charAt(1) == 'b'",
]
FAILING = {
    "[].max() == 1": "max called on empty list",
    "quantity('x').sign() == 1": "quantities must match the regular expression",
    "quantity('1m').asInteger() == 1": "cannot convert value to integer",
    "'a'.find('(') == ''": "Illegal regex",
}


@pytest.mark.parametrize("expression", TRUE)
def test_functions(expression: str) -> None:
    assert compile_program(expression, {}, "bool").evaluate({}) is True


@pytest.mark.parametrize(("expression", "text"), FAILING.items())
def test_refusals(expression: str, text: str) -> None:
    with pytest.raises(EvaluationFailed, match=text):
        compile_program(expression, {}, "bool").evaluate({})


@pytest.mark.parametrize("expression", ["isIP(self)", "url(self).getHost() == 'a'", "semver(self).major() == 1"])
def test_what_is_not_here_is_told_apart_from_mistakes(expression: str) -> None:
    for text, is_told in ((expression, True), (f"my{expression}", False)):
        with pytest.raises(CompilationFailed, match="undeclared reference to") as caught:
            compile_program(text, {"self": "string"}, "bool")
        assert ("the embedded cluster has no functions of versions" in str(caught.value)) is is_told


def test_a_method_of_something_else_is_refused() -> None:
    program = compile_program("self.isGreaterThan(quantity('1'))", {"self": "dyn"}, "bool")
    with pytest.raises(EvaluationFailed, match="no such overload"):
        program.evaluate({"self": "1"})


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("self.a.b.size() > 0", {"self": [("a", "b")]}),
        ("size(self) > oldSelf.c", {"self": [()], "oldSelf": [("c",)]}),
        ("x.self == 'self.a' && \"oldSelf\" != r'\\' // self.b", {}),
        ('\'it\\\'s self\' + self.a + """self.b " self.c"""', {"self": [("a",)]}),
        ("self.?a.orValue(1) == self.`b-c`.d", {"self": [("a",), ("b-c", "d")]}),
        ("self[0].a && self .a", {"self": [(), ("a",)]}),
        ("myself.a || self_a", {}),
    ],
)
def test_fields_that_are_selected(expression: str, selected: dict[str, list[tuple[str, ...]]]) -> None:
    found = find_selections(expression)
    assert {name: [each.names for each in uses] for name, uses in found.items()} == selected


def test_only_plain_selections_can_be_replaced() -> None:
    uses = find_selections("has(self.a) && self.a && self . a && self.?a.x() && self")["self"]
    assert [each.is_plain for each in uses] == [False, True, False, False, False]
