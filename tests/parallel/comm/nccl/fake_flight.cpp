// The list of all flights of the process, and the poison.
#include "tests/parallel/comm/nccl/fake_flight.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

namespace vit_hybrid::testing {

namespace {

constexpr std::byte kPoison{0xff};

struct Flights {
  std::mutex mutex;
  std::set<const Flight*> all;
};

Flights& flights() {
  static auto* const instance = new Flights;
  return *instance;
}

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

}  // namespace

Flight::Flight(std::string name, const FakeStream& stream, std::span<const std::byte> input,
               std::span<std::byte> output)
    : name_(std::move(name)), stream_(&stream), place_(stream.num_put()), input_(input), output_(output) {
  const std::lock_guard lock(flights().mutex);
  bool is_behind = false;
  for (const Flight* other : flights().all) {
    if (!collides_with(*other)) continue;
    const bool is_ordered = other->stream_ == stream_ || stream_->is_behind(*other->stream_, other->place_);
    if (!is_ordered) report_fault(name_ + " and " + other->name_ + " of another stream share memory");
    is_behind = true;
  }
  if (!is_behind) take();
  flights().all.insert(this);
}

Flight::~Flight() {
  const std::lock_guard lock(flights().mutex);
  flights().all.erase(this);
}

bool Flight::is_in_place() const {
  return overlap(input_, output_);
}

bool Flight::collides_with(const Flight& other) const {
  return overlap(output_, other.output_) || overlap(output_, other.input_) || overlap(input_, other.output_);
}

void Flight::take() {
  is_taken_ = true;
  kept_.assign(input_.begin(), input_.end());
  std::fill(output_.begin(), output_.end(), kPoison);
  if (is_in_place()) std::fill_n(const_cast<std::byte*>(input_.data()), input_.size(), kPoison);
}

std::span<const std::byte> Flight::begin() {
  if (!is_taken_) take();
  return is_in_place() ? kept_ : input_;
}

void Flight::end(std::span<const std::byte> result) {
  const bool is_poison = std::all_of(output_.begin(), output_.end(), [](std::byte value) { return value == kPoison; });
  if (!is_poison) return report_fault("the output of " + name_ + " was written to while that was in flight");
  if (!is_in_place() && !std::equal(input_.begin(), input_.end(), kept_.begin())) {
    report_fault("the input of " + name_ + " was written to while that was in flight");
  }
  std::copy(result.begin(), result.end(), output_.begin());
}

}  // namespace vit_hybrid::testing
