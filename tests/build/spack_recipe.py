#!/usr/bin/env python3
# Runs Spack's recipe with a stand-in for Spack, and compares what it says with what CMake asks for: dependencies with their
# versions, variants, the compiler, and the project's own version.
#
#   spack_recipe.py SOURCE_DIR
import pathlib
import re
import sys
import types

# What CMake calls a package, and Spack. None: part of the system, or of the compiler.
NAMES = {"MPI": "mpi", "Threads": None, "ParallelHDF5": "hdf5", "LibTorchCpu": "py-torch", "Boost": "boost",
         "yaml-cpp": "yaml-cpp", "nlohmann_json": "nlohmann-json", "XxHash": "xxhash", "Blosc": "c-blosc", "Deflate": "libdeflate", "Lz4": "lz4", "Zstd": "zstd", "ZLIB": "zlib-api", "Hwloc": "hwloc",
         "LibTorchCuda": "py-torch", "CUDAToolkit": "cuda", "OpenMP": None, "Git": "git", "doctest": "doctest",
         "Python3": "python"}
OPTIONS = {"VIT_HYBRID_ENABLE_CUDA": "cuda", "VIT_HYBRID_BUILD_TESTS": "tests"}
FIXED = {"VIT_HYBRID_WARNINGS_AS_ERRORS", "VIT_HYBRID_SANITIZE"}  # for who works on the project
BUILD_ALONE = {"c", "cxx", "cmake", "ninja"}
OF_CUDA = {"cuda", "nccl", "cudnn"}


class Recipe:
    """What the recipe has declared."""

    def __init__(self, path):
        self.depends, self.variants, self.versions, self.conflicts = [], {}, [], []
        spack = types.ModuleType("spack.package")
        spack.depends_on = lambda spec, when="", type=None: self.depends.append((spec, when))
        spack.variant = lambda name, default=None, description="": self.variants.update({name: default})
        spack.version = lambda text: self.versions.append(text)
        spack.conflicts = lambda spec, msg="": self.conflicts.append(spec)
        spack.license = spack.generator = lambda *_: None
        for name, members in (("spack", {}), ("spack.package", spack.__dict__), ("spack_repo", {}),
                              ("spack_repo.builtin", {}), ("spack_repo.builtin.build_systems", {}),
                              ("spack_repo.builtin.build_systems.cmake", {"CMakePackage": type("CMakePackage", (), {})}),
                              ("spack_repo.builtin.build_systems.cuda", {"CudaPackage": type("CudaPackage", (), {})})):
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__dict__.update(members)
        module = {}
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), module)
        self.package = module["VitHybrid"]

    def specs(self, name):
        return [(spec, when) for spec, when in self.depends if re.split(r"[@ ~+]", spec)[0] == name]

    def arguments(self, values):
        """CMake's arguments with variants of these values."""
        package = self.package()
        package.define = lambda name, value: (name, value)
        package.define_from_variant = lambda name, variant: (name, values[variant])
        package.spec = types.SimpleNamespace(satisfies=lambda text: values[text.strip("+~")] == (text[0] == "+"),
                                             variants={"cuda_arch": types.SimpleNamespace(value=("90",))})
        return dict(package.cmake_args())


def main():
    source = pathlib.Path(sys.argv[1])
    recipe = Recipe(source / "launch/spack/packages/vit_hybrid/package.py")
    failures = []

    def check(holds, what):
        if not holds:
            failures.append(what)

    top = (source / "CMakeLists.txt").read_text(encoding="utf-8")
    texts = [top] + [path.read_text(encoding="utf-8") for folder in ("src/cmake", "tests") for path in
                     sorted(source.glob(f"{folder}/**/*.cmake")) + sorted(source.glob(f"{folder}/**/CMakeLists.txt"))
                     if "consumer" not in path.parts]
    wanted = dict(re.findall(r"^\s*find_package\((\w[\w-]*)(?: ([\d.]+))?", "\n".join(texts), re.MULTILINE))
    for name, least in wanted.items():
        check(name in NAMES, f"CMake asks for {name}, which this test does not know")
        spack_name = NAMES.get(name)
        if spack_name is None:
            continue
        specs = recipe.specs(spack_name)
        check(specs, f"CMake asks for {name}, the recipe has no {spack_name}")
        if least:
            check(all(f"@{least}:" in spec for spec, _ in specs), f"CMake wants {name} {least}, the recipe {specs}")
    known = {NAMES[name] for name in wanted if NAMES.get(name)} | BUILD_ALONE | OF_CUDA
    for spec, when in recipe.depends:
        name = re.split(r"[@ ~+]", spec)[0]
        check(name in known, f"the recipe has {spec}, for which CMake does not ask")
        check((name in OF_CUDA) <= (when == "+cuda"), f"{spec} is not only for +cuda")
        check((name == "doctest") == (when == "+tests"), f"{spec} when '{when}'")

    find_torch = (source / "src/cmake/FindLibTorchCpu.cmake").read_text(encoding="utf-8")
    oldest = re.search(r"set\(_oldest ([\d.]+)\)", find_torch)[1]
    too_new = re.search(r"set\(_too_new (\d+)\.(\d+)\)", find_torch)
    newest = f"{too_new[1]}.{int(too_new[2]) - 1}"
    check(all(f"@{oldest}:{newest} " in spec for spec, _ in recipe.specs("py-torch")), f"LibTorch is {oldest} to {newest}")
    check({when for _, when in recipe.specs("py-torch")} == {"~cuda", "+cuda"}, "py-torch with and without CUDA")
    check("+mpi" in recipe.specs("hdf5")[0][0], "HDF5 is parallel")
    check("+program_options" in recipe.specs("boost")[0][0], "Boost has program_options")
    least = re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", top)[1]
    check(recipe.specs("cmake")[0][0] == f"cmake@{least}:", f"CMake is {least} or later")
    settings = (source / "src/cmake/settings.cmake").read_text(encoding="utf-8")
    gcc = int(re.search(r"CMAKE_CXX_COMPILER_VERSION VERSION_LESS (\d+)", settings)[1])
    check(recipe.conflicts == [f"%gcc@:{gcc - 1}"], f"GCC is {gcc} or later")
    version = re.search(r"project\(vit_hybrid VERSION ([\d.]+)", top)[1]
    check(recipe.versions == [version], f"the project is of version {version}")

    options = set(re.findall(r"^option\((VIT_HYBRID_\w+)", top, re.MULTILINE))
    check(options == set(OPTIONS) | FIXED, f"CMake's options are {options}")
    check(set(recipe.variants) == set(OPTIONS.values()), f"the variants are {set(recipe.variants)}")
    for value in (False, True):
        arguments = recipe.arguments({"cuda": value, "tests": not value})
        check(arguments["VIT_HYBRID_ENABLE_CUDA"] == value and arguments["VIT_HYBRID_BUILD_TESTS"] != value, f"{arguments}")
        check(("CMAKE_CUDA_ARCHITECTURES" in arguments) == value, f"{arguments}")
        check(arguments["VIT_HYBRID_WARNINGS_AS_ERRORS"] is False, "a newer compiler's warnings are no errors for users")

    for failure in failures:
        print(f"spack_recipe: {failure}", file=sys.stderr)
    if failures:
        sys.exit(1)
    print(f"spack_recipe: {len(recipe.depends)} dependencies are what CMake asks for")


if __name__ == "__main__":
    main()
