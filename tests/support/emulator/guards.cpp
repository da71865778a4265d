// Memory around arrays of emulated kernels that nobody may touch.
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/support/emulator/emulator.h"

namespace vit_hybrid::testing {

namespace {

constexpr unsigned char kNoNumber = 0xFF;
constexpr size_t kAlignment = 16;

size_t page_bytes() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t rounded_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

std::vector<const GuardedMemory*>& all_memory() {
  static std::vector<const GuardedMemory*> all;
  return all;
}

// The first byte that is another, or `end`; made kNoNumber again, as AddressSanitizer does not see.
__attribute__((no_sanitize("address"))) const unsigned char* mended(unsigned char* begin, unsigned char* end) {
  const unsigned char* first = end;
  for (unsigned char* byte = end; byte != begin;) {
    if (*--byte != kNoNumber) {
      *byte = kNoNumber;
      first = byte;
    }
  }
  return first;
}

}  // namespace

GuardedMemory::GuardedMemory(size_t bytes, size_t shift) : bytes_(bytes) {
  const size_t page = page_bytes(), needed = rounded_up(bytes + shift, kAlignment);
  inner_bytes_ = rounded_up(needed, page);
  void* const mapped =
      mmap(nullptr, inner_bytes_ + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("mmap");
  inner_ = static_cast<unsigned char*>(mapped) + page;
  data_ = inner_ + inner_bytes_ - needed + shift;
  mprotect(mapped, page, PROT_NONE);
  mprotect(inner_ + inner_bytes_, page, PROT_NONE);
  std::memset(inner_, kNoNumber, inner_bytes_);
  ASAN_POISON_MEMORY_REGION(inner_, static_cast<size_t>(data_ - inner_));
  ASAN_POISON_MEMORY_REGION(data_ + bytes_, static_cast<size_t>(inner_ + inner_bytes_ - data_) - bytes_);
  all_memory().push_back(this);
}

GuardedMemory::~GuardedMemory() {
  if (const std::string found = damage(); !found.empty()) {
    std::fprintf(stderr, "%s\n", found.c_str());
    std::abort();
  }
  auto& all = all_memory();
  all.erase(std::find(all.begin(), all.end(), this));
  ASAN_UNPOISON_MEMORY_REGION(inner_, inner_bytes_);
  munmap(inner_ - page_bytes(), inner_bytes_ + 2 * page_bytes());
}

std::string GuardedMemory::damage() const {
  unsigned char* const end = inner_ + inner_bytes_;
  const unsigned char* const before = mended(inner_, data_);
  const unsigned char* const behind = mended(data_ + bytes_, end);
  if (before == data_ && behind == end) return "";
  return "byte " + std::to_string((before != data_ ? before : behind) - data_) + " of an array of " +
         std::to_string(bytes_) + " was written";
}

void check_guards() {
  for (const GuardedMemory* const memory : all_memory()) {
    if (const std::string found = memory->damage(); !found.empty()) throw std::runtime_error(found);
  }
}

}  // namespace vit_hybrid::testing
