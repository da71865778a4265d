// Files of memfd_create(2), mapped here and, by /proc, in other processes.
#include "src/base/shareable_tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace vit_hybrid {

namespace {

std::atomic<int64_t> g_held{0}, g_most_held{0};

int anonymous_file() {
#ifdef MFD_NOEXEC_SEAL  // some systems allow no others, older ones do not know it
  if (const int descriptor = memfd_create("vit_hybrid", MFD_CLOEXEC | MFD_NOEXEC_SEAL); descriptor >= 0) {
    return descriptor;
  }
#endif
  return memfd_create("vit_hybrid", MFD_CLOEXEC);
}

// What a tensor of an anonymous file keeps of it.
struct Block {
  int descriptor;
  void* memory;
  size_t bytes;
};

void free_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  c10::profiledCPUMemoryReporter().Delete(block->memory);
  g_held -= static_cast<int64_t>(block->bytes);
  munmap(block->memory, block->bytes);
  close(block->descriptor);
}

class ShareableAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto block = std::make_unique<Block>(Block{anonymous_file(), MAP_FAILED, bytes});
    if (block->descriptor >= 0 && ftruncate(block->descriptor, static_cast<off_t>(bytes)) == 0) {
      block->memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, block->descriptor, 0);
    }
    if (block->memory == MAP_FAILED) {
      if (block->descriptor >= 0) close(block->descriptor);
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the host cannot allocate memory: ", bytes, " bytes were asked for");
    }
    c10::profiledCPUMemoryReporter().New(block->memory, bytes);
    const int64_t held = g_held += static_cast<int64_t>(bytes);
    for (int64_t most = g_most_held; held > most && !g_most_held.compare_exchange_weak(most, held);) {
    }
    void* const memory = block->memory;
    return {memory, block.release(), &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

bool has_anonymous_files() {
  static const bool has = [] {
    const int descriptor = anonymous_file();
    const std::string why = std::strerror(errno);
    if (descriptor >= 0) {
      close(descriptor);
    } else {
      log_warning(str("memfd_create: ", why, ": what ranks of a node add up goes through /dev/shm, which is slower"));
    }
    return descriptor >= 0;
  }();
  return has;
}

}  // namespace

at::Tensor shareable_zeros(int64_t elements, const at::TensorOptions& options) {
  if (elements == 0 || !options.device().is_cpu() || !has_anonymous_files()) {
    return at::zeros({elements}, options);
  }
  static auto* const allocator = new ShareableAllocator;
  return at::detail::empty_generic({elements}, allocator, c10::DispatchKeySet(c10::DispatchKey::CPU),
                                   c10::typeMetaToScalarType(options.dtype()), std::nullopt);  // a file begins as zeros
}

SharedName shared_name(const at::Tensor& tensor) {
  const c10::DataPtr& data = tensor.storage().data_ptr();
  if (data.get_deleter() != &free_block) {
    return {};
  }
  const auto& block = *static_cast<const Block*>(data.get_context());
  struct stat status {};
  VH_ASSERT(fstat(block.descriptor, &status) == 0, str("descriptor ", block.descriptor));
  return {getpid(), block.descriptor, status.st_ino, static_cast<int64_t>(block.bytes)};
}

std::shared_ptr<char> map_shared(const SharedName& name) {
  const std::string path = str("/proc/", name.process, "/fd/", name.descriptor);
  const auto fail = [&path](const std::string& why) {
    throw Error(ErrorClass::kIo, str("memory of another rank of the node cannot be mapped: ", path, ": ", why));
  };
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    fail(std::strerror(errno));
  }
  const auto bytes = static_cast<size_t>(name.bytes);
  struct stat status {};
  const bool is_it = fstat(descriptor, &status) == 0 && status.st_ino == name.file && status.st_size == name.bytes;
  void* const memory = is_it ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  const int error = errno;
  close(descriptor);
  if (memory == MAP_FAILED) {
    fail(is_it ? std::strerror(error) : "another process has that number here");
  }
  return {static_cast<char*>(memory), [bytes](char* mapped) { munmap(mapped, bytes); }};
}

int64_t shareable_bytes_peak() {
  return g_most_held;
}

}  // namespace vit_hybrid
