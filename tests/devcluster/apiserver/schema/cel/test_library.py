"""The functions of Kubernetes, and what the text of a rule selects."""

from __future__ import annotations

import pytest

from trainmaster.devcluster.apiserver.schema.cel.env import compile_program
from trainmaster.devcluster.apiserver.schema.cel.parser import find_selections
from trainmaster.devcluster.apiserver.schema.cel.program import EvaluationFailed

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
    "isSemver('1.2.3-rc.1+b') && !isSemver('v1.2.3') && !isSemver('01.2.3')",
    "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
    "semver('1.0.0-rc.2').isLessThan(semver('1.0.0-rc.10')) && semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1'))",
    "semver('1.0.0+a').compareTo(semver('1.0.0')) == 0",
    "isURL('https://a.b:80/c?d=e&d=f') && isURL('/path') && !isURL('not a url')",
    "url('https://user@a.b:80/c%20d?d=e').getHost() == 'a.b:80' && url('https://a.b:80').getHostname() == 'a.b'",
    "url('https://a.b:80/x').getPort() == '80' && url('https://a.b/x').getPort() == ''",
    "url('https://a.b/c%20d').getEscapedPath() == '/c%20d'",
    "url('https://a.b?d=e&d=f').getQuery() == {'d': ['e', 'f']} && url('http://a').getScheme() == 'http'",
    "isIP('10.0.0.1') && isIP('::1') && !isIP('10.0.0.256') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",
    "ip('10.0.0.1').family() == 4 && ip('::1').family() == 6 && ip('::1').isLoopback()",
    "ip('0.0.0.0').isUnspecified() && ip('169.254.1.1').isLinkLocalUnicast() && ip('8.8.8.8').isGlobalUnicast()",
    "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.0.1').isGlobalUnicast()",
    "ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1')",
    "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/255.0.0.0')",
    "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.0.0.0/8').containsCIDR(cidr('::/0'))",
    "cidr('10.1.2.3/8').prefixLength() == 8 && cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
    "cidr('10.1.2.3/8').ip() == ip('10.1.2.3')",
    "'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
    "' Ab '.trim().lowerAscii() == 'ab' && 'ab'.upperAscii() == 'AB' && 'aXa'.replace('a', 'b') == 'bXb'",
    "'abc'.substring(1) == 'bc' && 'abc'.substring(1, 2) == 'b' && 'abc'.charAt(1) == 'b'",
]
FAILING = {
    "[].max() == 1": "max called on empty list",
    "quantity('x').sign() == 1": "quantities must match the regular expression",
    "quantity('1m').asInteger() == 1": "cannot convert value to integer",
    "semver('1').major() == 1": "No valid semantic version",
    "url('x y').getHost() == ''": "URL parse error",
    "ip('x').family() == 4": "parse error during conversion from string",
    "cidr('10.0.0.1').prefixLength() == 4": "parse error during conversion from string",
    "'a'.find('(') == ''": "Illegal regex",
}


@pytest.mark.parametrize("expression", TRUE)
def test_functions(expression: str) -> None:
    assert compile_program(expression, {}, "bool").evaluate({}) is True


@pytest.mark.parametrize(("expression", "text"), FAILING.items())
def test_refusals(expression: str, text: str) -> None:
    with pytest.raises(EvaluationFailed, match=text):
        compile_program(expression, {}, "bool").evaluate({})


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
