"""Defects planted in a copy of one source file, to see that the simulator's net finds them."""

def planted_defect(name, src, find, replace, arguments, deps):
    """A test that passes when the simulator with one changed line finds something wrong.

    Args:
      name: what the defect does.
      src: label of the source file.
      find: basic regular expression (sed); the build fails when no line matches.
      replace: what stands there instead.
      arguments: of the simulator; one seed that fails is enough.
      deps: the library of `src` and what it includes.
    """
    native.genrule(
        name = name + "_source",
        srcs = [src],
        outs = [name + ".cc"],
        cmd = "sed 's~%s~%s~' $< > $@ && ! cmp -s $< $@" % (find, replace),
        tags = ["manual"],
        testonly = True,
    )

    # The changed file is an object of the program: the linker takes its symbols from there and leaves
    # the library's member out.
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        tags = ["manual"],
        deps = deps + [":simulate_main"],
    )
    native.sh_test(
        name = name + "_is_found_test",
        size = "medium",
        srcs = ["defect_test.sh"],
        args = ["$(location :%s)" % name] + arguments,
        data = [":" + name],
        tags = ["no-sanitizers"],  # broken on purpose
    )
