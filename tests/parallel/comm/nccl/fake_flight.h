// Memory of an operation in flight on the fake device: poisoned until the operation is done, and watched meanwhile.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tests/parallel/comm/nccl/fake_device.h"

namespace vit_hybrid::testing {

/// What one operation reads and writes, from its start by the caller to its end on the stream.
///
/// Until the end the output is poison: all bits set, a NaN of every type. Nobody may touch either meanwhile. Who reads
/// the output too early computes with NaN; who writes to it, or to the input, is told of by end(), which leaves memory
/// alone that is not poison: it may have been freed. An input that is read
/// late is what it is by then. Only where the two overlap is the input kept aside, because it is poisoned too: that
/// hides nothing, as who writes to it writes to the output. Of an input that is reduced onto a part of itself the rest
/// stays poison, as it is unspecified.
class Flight {
 public:
  /// Reports a fault where the memory is in flight on another stream that this one is not behind. Behind an operation
  /// on the same memory, which is fine, all this is done by begin().
  Flight(std::string name, const FakeStream& stream, std::span<const std::byte> input, std::span<std::byte> output);
  ~Flight();
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;

  /// The input as the operation finds it. On the stream.
  std::span<const std::byte> begin();
  /// The output becomes `result`, of its size; reports who has touched the memory. On the stream.
  void end(std::span<const std::byte> result);

  const std::string& name() const { return name_; }

 private:
  bool is_in_place() const;
  bool collides_with(const Flight& other) const;
  void take();

  std::string name_;
  const FakeStream* stream_;
  uint64_t place_;  // among the work of the stream
  std::span<const std::byte> input_;
  std::span<std::byte> output_;
  bool is_taken_ = false;
  std::vector<std::byte> kept_;  // the input
};

}  // namespace vit_hybrid::testing
