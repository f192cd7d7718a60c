"""The rules are proven on sources in bazel/forbidden/ that break them: each must be refused for the
right reason. Their targets are `manual`, so nothing else builds them."""
from checks import source
from checks.include_check import Checker


def _refused(result, reason):
    if result.returncode == 0:
        return ["it was accepted"]
    return [] if reason in result.stderr else [f"refused, but not with {reason!r}: {result.stderr[-1500:]}"]


def undeclared_include_fails():
    """The sandbox holds only what a target declares."""
    result = source.bazel("build", "--noshow_progress", "//bazel/forbidden:undeclared")
    named = [p for p in Checker(planted=True).undeclared()
             if "forbidden/undeclared.cc" in p and "common/hash.h" in p]
    return _refused(result, "common/hash.h: No such file or directory") + (
        [] if named else ["the include check did not name it"])


def include_through_dependency_fails():
    """g++ accepts it: the header is there for a dependency's sake. The include check does not, and
    neither does clang's layering_check (./test --long sanitizers)."""
    named = [p for p in Checker(planted=True).undeclared()
             if "forbidden/through_dependency.cc" in p and "common/mutex.h" in p]
    return [] if named else ["the include check did not name it"]


def wrong_direction_fails():
    found = "\n".join(Checker(planted=True).direction())
    wanted = ["forbidden/wrong_direction.cc", "may not include engine/", "may not include grpcpp/grpcpp.h"]
    return [f"the include check did not say {w!r}" for w in wanted if w not in found]


def invisible_dependency_fails():
    result = source.bazel("build", "--noshow_progress", "--nobuild", "//bazel/forbidden:invisible")
    return _refused(result, "is not visible from")
