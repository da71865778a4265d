# Spack's recipe (1.0 or later). In a clone:
#
#   spack repo add launch/spack
#   spack dev-build vit-hybrid@0.1.0 ^openmpi        (+cuda cuda_arch=90 for H100 and H200)
#
# tests/build/spack_recipe.py compares it with what CMake asks for.
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import conflicts, depends_on, generator, license, variant, version


class VitHybrid(CMakePackage, CudaPackage):
    """Hybrid-parallel (data, tensor, pipeline, ZeRO-1) training of Vision Transformers with MPI, NCCL and parallel HDF5."""

    license("Apache-2.0")

    version("0.1.0")

    variant("cuda", default=False, description="Also the CUDA and NCCL variant of the program")
    variant("tests", default=False, description="Build the tests")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja", type="build")
    depends_on("git", type="build")
    depends_on("python@3:", type=("build", "run"))

    depends_on("mpi@3.1:")
    depends_on("hdf5@1.10: +mpi")
    depends_on("py-torch@2.7:2.11 ~cuda", when="~cuda")
    depends_on("py-torch@2.7:2.11 +cuda +cudnn +nccl", when="+cuda")
    depends_on("boost@1.71: +program_options")
    depends_on("yaml-cpp")
    depends_on("nlohmann-json@3.9:")
    depends_on("xxhash")
    depends_on("c-blosc")
    depends_on("libdeflate")
    depends_on("lz4")
    depends_on("zstd")
    depends_on("zlib-api", type="test")
    depends_on("hwloc@2.1:")
    depends_on("cuda", when="+cuda")
    depends_on("nccl", when="+cuda")
    depends_on("cudnn", when="+cuda")
    depends_on("doctest", when="+tests")

    conflicts("%gcc@:11", msg="the C++20 of GCC 12 or later is needed")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define_from_variant("VIT_HYBRID_ENABLE_CUDA", "cuda"),
            self.define_from_variant("VIT_HYBRID_BUILD_TESTS", "tests"),
            self.define("VIT_HYBRID_WARNINGS_AS_ERRORS", False),
        ]
        if self.spec.satisfies("+cuda") and self.spec.variants["cuda_arch"].value[0] != "none":
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", list(self.spec.variants["cuda_arch"].value)))
        return args
