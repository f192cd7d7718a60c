_Protos = provider(fields = ["srcs"])  # depset: .proto files with everything they import
def _generate_impl(ctx):
    srcs = depset(ctx.files.srcs, transitive = [d[_Protos].srcs for d in ctx.attr.deps])
    args = ["-I.", "--cpp_out=" + ctx.bin_dir.path]
    if ctx.attr.services:
        args += ["--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin", "--grpc_out=" + ctx.bin_dir.path]
    ctx.actions.run(executable = "/usr/bin/protoc", arguments = args + [f.path for f in ctx.files.srcs],
                    inputs = srcs, outputs = ctx.outputs.outs, mnemonic = "Protoc")
    return [_Protos(srcs = srcs)]
_generate = rule(implementation = _generate_impl, attrs = {
    "srcs": attr.label_list(allow_files = [".proto"]), "deps": attr.label_list(providers = [_Protos]),
    "outs": attr.output_list(), "services": attr.bool()})
def _library(name, srcs, deps, services, runtime, **kwargs):
    bases = [s[:-len(".proto")] + k for s in srcs for k in ([".pb", ".grpc.pb"] if services else [".pb"])]
    hdrs, ccs = [b + ".h" for b in bases], [b + ".cc" for b in bases]
    _generate(name = name + "_generate", srcs = srcs, outs = hdrs + ccs, services = services,
              deps = [d + "_generate" for d in deps], visibility = kwargs.get("visibility"))
    native.cc_library(name = name, srcs = ccs, hdrs = hdrs, copts = ["-w"], deps = deps + [runtime], **kwargs)
def baton_proto_library(name, srcs, deps = [], **kwargs):  # messages only
    _library(name, srcs, deps, False, "//bazel:protobuf", **kwargs)
def baton_grpc_library(name, srcs, deps = [], **kwargs):  # deps: targets of these macros, written "//package:name"
    _library(name, srcs, deps, True, "//bazel:grpc", **kwargs)
