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
#include <mutex>
#include <optional>
#include <string>

#include "src/base/text.h"

namespace vit_hybrid {

namespace {

std::atomic<int64_t> g_held{0}, g_most_held{0};
std::mutex g_unshared_mutex;
std::optional<Error> g_unshared;

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
  SharedName name;
  void* memory;
};

void free_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  c10::profiledCPUMemoryReporter().Delete(block->memory);
  g_held -= block->name.bytes;
  munmap(block->memory, static_cast<size_t>(block->name.bytes));
  close(static_cast<int>(block->name.descriptor));
}

// Pages of a file are taken when they are first written, and where there are none left that is a signal. So that a
// tensor that can never be had is refused at once, as any other, memory for it is asked for, and given back.
bool is_there(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED && munmap(memory, bytes) == 0;
}

// An anonymous file of so many zeros; null where the system makes none. Throws where it has no memory.
std::unique_ptr<Block> make_block(size_t bytes) {
  const int descriptor = is_there(bytes) ? anonymous_file() : -1;
  struct stat status {};
  void* memory = MAP_FAILED;
  if (descriptor >= 0 && ftruncate(descriptor, static_cast<off_t>(bytes)) == 0 && fstat(descriptor, &status) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  if (memory != MAP_FAILED) {
    const SharedName name{getpid(), descriptor, status.st_dev, status.st_ino, static_cast<int64_t>(bytes)};
    return std::make_unique<Block>(Block{name, memory});
  }
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (error == ENOMEM) {
    c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, false, "the host cannot allocate memory: ", bytes, " bytes were asked for");
  }
  note_unshared(
      Error(ErrorClass::kIo, str("no file of ", bytes, " bytes in memory (memfd_create): ", std::strerror(error))));
  return nullptr;
}

// Of anonymous files, or of the system's ordinary memory where there are none.
class ShareableAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto block = make_block(bytes);
    if (block == nullptr) return at::getCPUAllocator()->allocate(bytes);
    c10::profiledCPUMemoryReporter().New(block->memory, bytes);
    const int64_t held = g_held += block->name.bytes;
    for (int64_t most = g_most_held; held > most && !g_most_held.compare_exchange_weak(most, held);) {
    }
    void* const memory = block->memory;
    return {memory, block.release(), &free_block, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

at::Tensor shareable_zeros(int64_t elements, const at::TensorOptions& options) {
  if (elements == 0 || !options.device().is_cpu()) {
    return at::zeros({elements}, options);
  }
  static auto* const allocator = new ShareableAllocator;
  const at::Tensor tensor = at::detail::empty_generic({elements}, allocator, c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                      c10::typeMetaToScalarType(options.dtype()), std::nullopt);
  return shared_name(tensor).bytes > 0 ? tensor : tensor.zero_();  // a file begins as zeros
}

SharedName shared_name(const at::Tensor& tensor) {
  const c10::DataPtr& data = tensor.storage().data_ptr();
  return data.get_deleter() == &free_block ? static_cast<const Block*>(data.get_context())->name : SharedName{};
}

std::shared_ptr<char> map_shared(const SharedName& name) {
  const std::string path = str("/proc/", name.process, "/fd/", name.descriptor);
  const auto fail = [&path](const std::string& why) {
    throw Error(ErrorClass::kIo, str("memory of another rank of the node cannot be mapped: ", path, ": ", why));
  };
  // Another process may have that number here, and its file is left alone.
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) fail(std::strerror(errno));
  const bool is_it = S_ISREG(status.st_mode) && status.st_dev == name.device && status.st_ino == name.file;
  if (!is_it || status.st_size != name.bytes) fail("another process has that number here");
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) fail(std::strerror(errno));
  const auto bytes = static_cast<size_t>(name.bytes);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int error = errno;
  close(descriptor);
  if (memory == MAP_FAILED) fail(std::strerror(error));
  madvise(memory, bytes, MADV_DONTDUMP);  // the core of the process that has it is enough
  return {static_cast<char*>(memory), [bytes](char* mapped) { munmap(mapped, bytes); }};
}

std::optional<Error> unshared() {
  const std::lock_guard lock(g_unshared_mutex);
  return g_unshared;
}

void note_unshared(const Error& error) {
  const std::lock_guard lock(g_unshared_mutex);
  if (!g_unshared) g_unshared = error;
}

int64_t shareable_bytes_peak() {
  return g_most_held;
}

}  // namespace vit_hybrid
