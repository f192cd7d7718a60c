"""Every #include names a header of the including target or of a direct dependency, in the allowed
direction. The compiler alone does not see this: a header reached through a dependency of a
dependency compiles, and whatever lies in /usr/include compiles everywhere."""
import re
import sys

from checks import include_rules as rules
from checks import source, targets


def _generated(header):
    return header.endswith(".pb.h")


def _folder(path):
    """The longest folder that the rules name, else the top one."""
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        if "/".join(parts[:length]) in rules.FOLDERS:
            return "/".join(parts[:length])
    return parts[0] if parts else ""


class Checker:
    def __init__(self, planted=False):
        self.targets = targets.load(planted)
        self.paths = source.files(*source.CODE, planted=planted)
        self.known = set(source.files(*source.CODE, planted=True))
        self.owners = {}
        for target in self.targets.values():
            for path in target.files:
                self.owners.setdefault(path, []).append(target)

    def _resolve(self, header):
        """Our own file behind the name in an #include, or None: the system's. Generated protobuf
        headers are named from proto/."""
        if header in self.known:
            return header
        if _generated(header):
            return next((h for h in (header, "proto/" + header) if h in self.owners), None)
        return None

    def undeclared(self):
        """Includes without a direct dependency, and files that no target has."""
        problems = []
        for path in self.paths:
            if path not in self.owners:
                problems.append(f"{path}: no target has this file")
            for line, header in source.includes(path):
                for owner in self.owners.get(path, []):
                    problem = self._missing_dep(owner, header)
                    if problem:
                        problems.append(f"{path}:{line}: {problem}")
        return problems

    def _missing_dep(self, owner, header):
        own = self._resolve(header)
        if own:
            homes = [t for t in self.owners.get(own, []) if own in t.headers or t is owner]
            if any(t is owner or t.label in owner.deps for t in homes):
                return None
            return f"{owner.label} includes {header} without a direct dependency on " + (
                " or ".join(sorted(t.label for t in homes)) or "a target that offers it")
        for pattern, library, _ in rules.SYSTEM:
            if re.fullmatch(pattern, header):
                return self._missing_library(owner, header, library)
        return None

    def _missing_library(self, owner, header, library):
        offered = {d[len("//bazel:"):] for d in owner.deps if d.startswith("//bazel:")}
        if library in offered or (library in ("protobuf", "absl_status") and "grpc" in offered):
            return None
        return f"{owner.label} includes {header} without //bazel:{library}"

    def direction(self):
        """Includes against the layering of the folders."""
        problems = []
        for path in self.paths:
            if re.fullmatch(rules.JOINS, path):
                continue
            test_only = re.search(r"(^|[/_])(test|bench|testing|fake|fixture)(_[a-z_]*)?\.(h|cc)$", path) is not None
            for line, header in source.includes(path):
                problem = self._wrong_way(_folder(path), header, test_only)
                if problem:
                    problems.append(f"{path}:{line}: {problem}")
        return problems

    def _wrong_way(self, folder, header, test_only):
        if re.fullmatch(rules.FORBIDDEN, header):
            return f"{header} is never used here"
        own = self._resolve(header)
        if own:
            return self._wrong_folder(folder, own, test_only)
        for pattern, _, allowed in rules.SYSTEM:
            if re.fullmatch(pattern, header):
                if allowed is None or folder in allowed or test_only:
                    return None
                return f"{folder}/ may not include {header}"
        return None

    def _wrong_folder(self, folder, header, test_only):
        other = _folder(header)
        if other == folder:
            return None
        if folder not in rules.FOLDERS:
            return f"folder {folder}/ is not in scripts/checks/include_rules.py"
        if test_only:
            apart = {folder, other} & rules.ROUTER and {folder, other} & rules.WORKERS
            return f"{folder}/ may never include {header}" if apart else None
        if other not in rules.FOLDERS[folder]:
            return f"{folder}/ may not include {header}"
        only = rules.ONLY.get((folder, other))
        if only and not re.fullmatch(only, header):
            return f"{folder}/ may not include {header}: of {other}/ only {only}"
        return None


if __name__ == "__main__":
    checker = Checker(planted="--planted" in sys.argv)
    print(*checker.undeclared(), *checker.direction(), sep="\n")
