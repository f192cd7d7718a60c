#!/usr/bin/env python3
"""Renders small templates with Jinja2, configured as chat templates are, and prints one JSON object a line."""
import json

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be <b>brief</b>."},
        {"role": "user", "content": "  Hi \"you\"\n", "name": "joe"},
        {"role": "assistant", "content": "a</think>b</think> c", "tool_calls": [{"id": 1}]},
        {"role": "user", "content": "é🚀 'x'"},
    ],
    "tool": {"name": "f", "parameters": {"type": "object", "required": ["a", "b"], "n": 1.5, "none": None, "flag": True}},
    "numbers": [3, 1, 2, 3],
    "words": ["b", "A", "c", "b"],
    "empty": [],
    "text": "  Hello, World!  ",
    "unicode": "\u00a0\u3000日本語 é🚀\u2003",
    "zero": 0, "one": 1, "minus": -7, "half": 0.5, "big": 1e16, "tiny": 1e-5, "float": 3.0,
    "yes": True, "no": False, "nothing": None,
    "lines": "one\n  two\n\nthree",
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2, 7 % 3, minus // 2, minus % 3, 7 / 2
2 ** 3 ** 2
-2 ** 2
(1 + 2) * 3
half + 1
float
big
tiny
1e22
123456789.125
0.1 + 0.2
1_000 + 1
"a" ~ 1 ~ none ~ true ~ half
"a" "b" 'c'
"tab\tnew\nline\\ \x41 \u00e9 \U0001F680 \' \" \q"
'it''s'
not yes
not yes or yes
yes and no or one
zero or "fallback"
one and "then"
nothing is none
nothing is not none
missing is defined
missing is not defined
missing is undefined
missing
missing or "d"
missing == missing
not missing is defined
text is string and numbers is iterable and tool is mapping
numbers is sequence, text is mapping, one is number, half is float, one is integer, yes is boolean
yes is true, no is false, one is true
one is odd, zero is even, 9 is divisibleby 3, 9 is divisibleby(2)
one is eq 1, one is ne 1, one is gt 0, 2 is in numbers
1 < 2 < 3, 1 < 2 > 3, 1 == 1.0 == true
"a" < "b", "B" < "a"
"ell" in "hello", "x" not in "hello"
2 in numbers, 9 in numbers, "name" in tool, "zzz" in tool
"a" in missing
"yes" if one else "no"
"yes" if zero else "no"
("yes" if zero) ~ "|"
1 if zero else 2 if zero else 3
[1, "two", none, true, 1.5, ["x"], {"k": "v"}]
{"a": 1, "b": [1, 2]}
[]
{}
["it's", 'say "hi"', "both ' and \""]
["line\n\ttab\\"]
messages[0].role ~ messages[0]["content"]
messages[-1].content
messages[9] is defined
messages[1:] | length
messages[:-1] | length
messages[::-1][0].content
numbers[1:3], numbers[::2], numbers[::-1], numbers[-2:], numbers[5:], numbers[:100]
text[2:7], text[::-1], text[0], text[-3]
unicode[2], unicode[2:5], unicode | length
text | trim, text | trim | length
unicode | trim
unicode.strip() ~ "|" ~ unicode.lstrip() ~ "|" ~ unicode.rstrip()
"xxhixx".strip("x"), "xxhixx".lstrip("x"), "xyhixy".rstrip("yx")
"日本日".strip("日")
text.upper() ~ text.lower() ~ "hello wORLD it's".title() ~ "hELLO".capitalize()
text | upper, text | lower, "foo bar" | title, "foo Bar" | capitalize
"a,b,,c".split(","), "a,b,,c".split(",", 1)
" a  b\tc ".split()
"a</think>b</think>c".split("</think>")[-1]
"a\nb\n".splitlines()
"aXbXc".replace("X", "--"), "aXbXc".replace("X", "", 1)
"aXbXc" | replace("X", "-")
"hello".startswith("he"), "hello".endswith("lo"), "hello".startswith("x"), "hello".endswith("hello!")
"hello".find("l"), "hello".find("z"), "日本".find("本")
", ".join(words)
words | join(", "), numbers | join("+"), empty | join("x"), words | join
numbers | length, text | length, tool | length, missing | length, numbers | count
numbers | first, numbers | last, (empty | first) is defined
numbers | list, "abc" | list, tool | list
numbers | reverse | list, "abc" | reverse
numbers | unique | list
words | map("upper") | list
messages | map(attribute="role") | join(",")
messages | map(attribute="name", default="?") | join(",")
messages | selectattr("role", "equalto", "user") | list | length
messages | selectattr("name") | list | length
messages | selectattr("name", "defined") | map(attribute="content") | list
messages | rejectattr("role", "eq", "user") | map(attribute="role") | list
numbers | select("gt", 1) | list, numbers | reject("odd") | list, [0, 1, ""] | select | list
missing | default("d"), nothing | default("d"), nothing | default("d", true), "" | d("e", boolean=true)
nothing | string, one | string, half | string, tool | string
tool.name, tool["name"], tool.missing is defined
tool.items() | map("join", "=") | first
tool.keys() | list, tool.parameters.values() | list
tool.get("name"), tool.get("zzz"), tool.get("zzz", 5)
tool.parameters | items | map("first") | list
{"b": 1, "a": 2} | dictsort | map("last") | list
tool | tojson
tool | tojson(indent=2)
tool.parameters | tojson(indent=4)
messages | tojson
"é\"\\\n\t\u0001/<>&'" | tojson
"é🚀" | tojson(ensure_ascii=true)
"é🚀" | tojson(ensure_ascii=False)
[] | tojson, {} | tojson, none | tojson, true | tojson, 1.5 | tojson, 10 | tojson, 1e100 | tojson
[] | tojson(indent=2), [[], {}] | tojson(indent=2)
"5" | int, "x" | int, "x" | int(7), 3.9 | int, "3.7" | int, minus | abs, half | int
lines | indent(2), lines | indent(2, true), lines | indent(2, false, true)
range(3) | list, range(1, 4) | list, range(5, 0, -2) | list, range(0) | list
dict(a=1, b="x")
[1, 2] + [3]
"ab" * 3, 2 * "x", "x" * 0, "x" * -1
numbers == [3, 1, 2, 3], tool == tool, {"a": 1} == {"a": 1.0}, [1] == [1.0]
-one, +one, - half
(1, 2)[0], (1,)[0]
"%" ~ "}" ~ "}}" ~ "%}"
{"a": {"b": {"c": 1}}}.a.b.c
messages[1].name is defined and messages[1].name
strftime_now("%d %B %Y"), strftime_now("%Y-%m-%d %H:%M %a %b %j %%")
loop is defined
none is none
"a" is string == true
numbers[0] == 3 and numbers | length == 4
(messages | length - 1) - 0
messages[0].content.content is defined
text is not mapping and text is iterable
"x" | safe
""" + ""

TEMPLATES = [
    "plain text\n",
    "two newlines\n\n",
    "a\n{% if yes %}\nb\n{% endif %}\nc",
    "a\n  {% if yes %}\n  b\n  {% endif %}\n  c",
    "a\n  {%+ if yes %}b{% endif %}\n c",
    "a {%- if yes -%}  b  {%- endif -%}  c",
    "a\n\n  {%- if yes %}\n\n b\n{%- endif %}\n\nc",
    "{# comment #}\na{#- x -#}  b {# y #}\n  c",
    "  {# indented #}\n  x{# inline #} y",
    "{{ 1 }}\n{{- 2 -}}\n {{ 3 }}",
    "x  {{ one }}  y\n  {{ one }}\n",
    "{% if yes %}{# c #}\n  {% if yes %}z{% endif %}{% endif %}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ '}}' }}{{ '%}' }}{% if '%}' %}x{% endif %}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}|{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}>{{ loop.nextitem.role if not loop.last }} {% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{{ loop.last }}{% endfor %}",
    "{% for x in empty %}x{% else %}none{% endfor %}",
    "{% for x in numbers if x > 9 %}x{% else %}none{% endfor %}",
    "{% for x in missing %}x{% else %}none{% endfor %}",
    "{% for k, v in tool.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in tool %}{{ k }};{% endfor %}",
    "{% for c in 'aé' %}[{{ c }}]{% endfor %}",
    "{% for (a, b) in [[1, 2], [3, 4]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a in [1, 2] %}{% for b in 'xy' %}{{ loop.depth }}{{ a }}{{ b }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for a in [1, 2] %}{% set outer = loop %}{% for b in 'xy' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in numbers %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% if not later is defined %}{% set later = false %}{% endif %}{{ later }}",
    "{% set ns = namespace(n=0, s='') %}{% for i in numbers %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.missing is defined }}",
    "{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set x %}captured {{ one }}{% endset %}[{{ x }}]",
    "{% set t = (1, 2, 3) %}{{ t[1] }}{{ t | length }}",
    "{% macro f(a, b=2, c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, 3) }}|{{ f(1, c='y') }}|{{ f() }}",
    "{% macro f(x) %}{{ x }}{{ one }}{{ missing is defined }}{% endmacro %}{% set one = 5 %}{{ f('a') }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% macro f(x) -%}\n  {{ x }}\n{%- endmacro %}{% set y = f(1) %}{{ y | length }}{{ 'a' + y }}",
    "{% for x in [1] %}{% macro g() %}in{% endmacro %}{{ g() }}{% endfor %}",
    "{% set x = 1 %}{% macro f() %}{% set x = 2 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}",
    "{% set ns = namespace(v=1) %}{% macro f() %}{% set ns.v = 2 %}{% endmacro %}{{ f() }}{{ ns.v }}",
    "{% if zero %}a{% elif one %}b{% else %}c{% endif %}{% if zero %}a{% elif nothing %}b{% else %}c{% endif %}",
    "{% for m in messages[1:] %}{{ m['role'] }}{% if (loop.index0 == 0) or (messages[loop.index0 - 1].role != 'tool') %}!{% endif %}{% endfor %}",
    "{%- for m in messages -%}\n  <{{ m.role }}>\n  {{- m.content | trim -}}\n{%- endfor -%}\n",
    "{{ raise_exception('no') if zero else 'fine' }}",
    "{{ raise_exception('no') }}",
    "{{ missing.attribute }}",
    "{{ messages[9].role }}",
    "{{ 'a' + 1 }}",
    "{{ none + 'a' }}",
    "{{ 1 < 'a' }}",
    "{{ 1 // 0 }}",
    "{% for x in 5 %}{% endfor %}",
    "{% for a, b in [[1]] %}{% endfor %}",
    "{{ 'x' in 5 }}",
    "{% set tool.x = 1 %}",
    "{{ nothing.upper() }}",
]


def main():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form):
        import datetime
        return datetime.datetime(2024, 7, 24).strftime(form)

    def tojson(x, ensure_ascii=False, indent=None):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent)

    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    environment.filters["tojson"] = tojson
    # Several expressions of a line are separated in the output, so that tuples need no rendering.
    sources = TEMPLATES + ["{{ [" + line + "] }}" if "," in line else "{{ " + line + " }}" for line in EXPRESSIONS.strip().split("\n")]
    for source in sources:
        case = {"template": source, "variables": VARIABLES}
        try:
            case["expected"] = environment.from_string(source).render(**VARIABLES)
        except Exception as error:
            case["refused"] = str(error)
        print(json.dumps(case))


main()
