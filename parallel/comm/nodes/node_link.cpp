// Shared memory and its slots; the ranks of a node, and the blocks of sums on a node and over nodes.
#include "parallel/comm/nodes/node_link.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "parallel/comm/agreement.h"
#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/operation.h"
#include "parallel/comm/statistics.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/shareable_tensor.h"
#include "src/base/text.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace vit_hybrid::comm {

namespace {

constexpr uintptr_t kAlignment = 64;

// Mappings begin at pages, so all processes move a pointer by the same distance.
std::byte* align(void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<std::byte*>(pointer) + (kAlignment - address % kAlignment) % kAlignment;
}

}  // namespace

struct SharedSegment::Window {
  std::shared_ptr<WatchedGroup> watched;
  MPI_Win window = MPI_WIN_NULL;
  at::Tensor own;  // in place of a window, for a group of one
  std::vector<std::byte*> regions;
};

SharedSegment::SharedSegment(const MpiGroup& node, int64_t bytes_per_rank) : window_(std::make_unique<Window>()) {
  if (node.size() == 1) {
    const MemoryScope scope(MemoryClass::kCommunication);
    window_->own = at::empty({own_bytes(1, bytes_per_rank)}, at::kByte);
    window_->regions.push_back(align(window_->own.data_ptr()));
    std::memset(region(0), 0, static_cast<size_t>(bytes_per_rank));
    return;
  }
  node.barrier();  // it waits more politely than what follows
  MPI_Info info = MPI_INFO_NULL;
  check_mpi(MPI_Info_create(&info), "MPI_Info_create");
  // Each rank's region on pages of its own, and so in the memory next to it.
  check_mpi(MPI_Info_set(info, "alloc_shared_noncontig", "true"), "MPI_Info_set");
  const auto bytes = static_cast<MPI_Aint>(bytes_per_rank + static_cast<int64_t>(kAlignment));
  void* base = nullptr;
  window_->watched = node.watched();
  {
    const CollectiveScope scope(*window_->watched, kControlAxis, "building of shared memory", bytes);
    check_mpi(MPI_Win_allocate_shared(bytes, 1, info, mpi_comm(node), &base, &window_->window),
              "MPI_Win_allocate_shared");
  }
  check_mpi(MPI_Info_free(&info), "MPI_Info_free");
  for (int rank = 0; rank < node.size(); ++rank) {
    MPI_Aint size = 0;
    int unit = 0;
    check_mpi(MPI_Win_shared_query(window_->window, rank, &size, &unit, &base), "MPI_Win_shared_query");
    window_->regions.push_back(align(base));
  }
  std::memset(region(node.rank()), 0, static_cast<size_t>(bytes_per_rank));
  node.barrier();
}

SharedSegment::~SharedSegment() {
  if (window_ == nullptr || window_->window == MPI_WIN_NULL || !may_release_mpi()) return;
  const CollectiveScope scope(*window_->watched, kControlAxis, "freeing of shared memory");
  MPI_Win_free(&window_->window);
}

SharedSegment::SharedSegment(SharedSegment&&) noexcept = default;

int64_t SharedSegment::own_bytes(int num_ranks, int64_t bytes_per_rank) {
  return num_ranks == 1 ? bytes_per_rank + static_cast<int64_t>(kAlignment) : 0;
}

std::byte* SharedSegment::region(int rank) const {
  return window_->regions[static_cast<size_t>(rank)];
}

int64_t free_shared_memory() {
  struct statvfs status {};
  if (statvfs("/dev/shm", &status) != 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

struct SharedSlots::Control {
  alignas(64) std::atomic<uint64_t> entered{0};  // rounds entered, with their signatures:
  uint64_t signatures[kNumSlots] = {};
  alignas(64) std::atomic<uint64_t> reduced{0};
  alignas(64) std::atomic<uint64_t> led{0};
  alignas(64) std::atomic<uint64_t> left{0};
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "atomics must work between processes");

int64_t SharedSlots::bytes_per_rank(int64_t slot_bytes) {
  return static_cast<int64_t>(sizeof(Control)) + kNumSlots * slot_bytes;
}

SharedSlots::SharedSlots(const MpiGroup& group, int64_t slot_bytes, bool past_caches)
    : rank_(group.rank()),
      size_(group.size()),
      slot_bytes_(slot_bytes),
      past_caches_(past_caches && group.size() > 1),
      segment_(group, bytes_per_rank(slot_bytes)) {
  VH_ASSERT(slot_bytes % 64 == 0 && slot_bytes >= 8 * size_, str("slot_bytes ", slot_bytes, " for ", size_, " ranks"));
  new (segment_.region(rank_)) Control;
  for (int rank = 0; rank < size_; ++rank) {
    controls_.push_back(reinterpret_cast<Control*>(segment_.region(rank)));
  }
  group.barrier();
}

char* SharedSlots::slot(int rank, uint64_t round) const {
  std::byte* const slots = segment_.region(rank) + sizeof(Control);
  const auto index = static_cast<int64_t>(round % kNumSlots);
  return reinterpret_cast<char*>(slots + index * slot_bytes_);
}

void SharedSlots::put(char* to, const char* from, int64_t bytes) const {
#ifdef __SSE2__
  constexpr int64_t kLine = 64;
  if (past_caches_) {
    const int64_t unaligned = std::min(bytes, static_cast<int64_t>(align(to) - reinterpret_cast<std::byte*>(to)));
    std::memcpy(to, from, static_cast<size_t>(unaligned));
    to += unaligned;
    from += unaligned;
    bytes -= unaligned;
    for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
      for (int64_t i = 0; i < kLine; i += sizeof(__m128i)) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
      }
    }
    _mm_sfence();  // what tells others of it comes after it
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

bool SharedSlots::all_at_least(Counter counter, uint64_t value) const {
  for (const Control* const control : controls_) {
    if ((control->*counter).load(std::memory_order_acquire) < value) return false;
  }
  return true;
}

bool SharedSlots::may_enter(uint64_t round) const {
  return round < kNumSlots || all_at_least(&Control::left, round - kNumSlots + 1);
}

void SharedSlots::enter(uint64_t round, uint64_t signature) {
  Control& own = *controls_[static_cast<size_t>(rank_)];
  own.signatures[round % kNumSlots] = signature;
  own.entered.store(round + 1, std::memory_order_release);
}

bool SharedSlots::all_entered(uint64_t round) const {
  return all_at_least(&Control::entered, round + 1);
}

void SharedSlots::mark_reduced(uint64_t round) {
  controls_[static_cast<size_t>(rank_)]->reduced.store(round + 1, std::memory_order_release);
}

bool SharedSlots::all_reduced(uint64_t round) const {
  return all_at_least(&Control::reduced, round + 1);
}

void SharedSlots::mark_led(uint64_t round) {
  VH_ASSERT(leader(round) == rank_, str("rank ", rank_, " leads round ", round));
  controls_[static_cast<size_t>(rank_)]->led.store(round + 1, std::memory_order_release);
}

bool SharedSlots::is_led(uint64_t round) const {
  return controls_[static_cast<size_t>(leader(round))]->led.load(std::memory_order_acquire) > round;
}

void SharedSlots::leave(uint64_t round) {
  controls_[static_cast<size_t>(rank_)]->left.store(round + 1, std::memory_order_release);
}

uint64_t SharedSlots::signature(int rank, uint64_t round) const {
  return controls_[static_cast<size_t>(rank)]->signatures[round % kNumSlots];
}

std::vector<int> SharedSlots::below(Counter counter, uint64_t value) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    const Control& control = *controls_[static_cast<size_t>(rank)];
    if ((control.*counter).load(std::memory_order_acquire) < value) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> SharedSlots::missing(uint64_t round, bool reduce) const {
  const Control& own = *controls_[static_cast<size_t>(rank_)];
  if (own.entered.load(std::memory_order_relaxed) <= round) return below(&Control::left, round - kNumSlots + 1);
  std::vector<int> ranks = below(&Control::entered, round + 1);
  return ranks.empty() && reduce ? below(&Control::reduced, round + 1) : ranks;
}

namespace {

// What function(ranks) returns for the ranks of `group` that are on its node of number `node`. Collective over `group`.
template <class Function>
auto on_node(const MpiGroup& group, int num_nodes, int node, const Function& function) {
  return num_nodes == 1 ? function(group) : function(group.split(node));
}

std::vector<int> first_ranks(const std::vector<int>& nodes) {
  std::vector<int> first = {0};
  std::partial_sum(nodes.begin(), nodes.end(), std::back_inserter(first));
  return first;
}

int node_of_rank(const std::vector<int>& first, int rank) {
  return static_cast<int>(std::upper_bound(first.begin(), first.end(), rank) - first.begin()) - 1;
}

}  // namespace

NodeSteps::NodeSteps(int num_nodes, int most_in_one) : run_size_(num_nodes) {
  if (num_nodes <= most_in_one) return;
  for (int runs = 2; num_nodes % runs == 0; runs *= 2) {
    if (num_nodes / runs + runs < run_size_ + num_runs_) {
      num_runs_ = runs;
      run_size_ = num_nodes / runs;
    }
  }
}

std::vector<int> NodeSteps::peers(int step, int node) const {
  const bool is_run = step == 0;
  std::vector<int> nodes(static_cast<size_t>(is_run ? run_size_ : num_runs_));
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto number = static_cast<int>(i);
    nodes[i] = is_run ? node / run_size_ * run_size_ + number : number * run_size_ + node % run_size_;
  }
  return nodes;
}

Range NodeSteps::places(int step, int node) const {
  const int first = step == 0 ? node % run_size_ * num_runs_ : place(node);
  return {first, step == 0 ? first + num_runs_ : first + 1};
}

NodeTree::NodeTree(int node, int num_nodes) {
  for (Range range{0, num_nodes}; range.size() > 1;) {
    const auto half = static_cast<int>(range.begin + Partition(range.size(), 2).part(1).begin);
    if (node == range.begin) children.push_back(half);
    if (node == half) parent = static_cast<int>(range.begin);
    range = node < half ? Range{range.begin, half} : Range{half, range.end};
  }
  std::reverse(children.begin(), children.end());
}

GroupNodes::GroupNodes(const std::vector<int>& nodes, const SumBlocks& blocks, int most_in_one_step)
    : first_(first_ranks(nodes)) {
  const bool are_blocks = num_nodes() == 1 || nodes == blocks;
  VH_ASSERT(are_blocks || num_nodes() == num_ranks(), "nodes that are not the blocks of a sum");
  blocks_of_nodes_ = are_blocks ? SumBlocks(nodes.size(), 1) : blocks;
  steps_ = NodeSteps(num_nodes(), adds_nodes_by_tree() ? most_in_one_step : num_nodes());
  before_ = {0};
  for (int place = 0; place < num_nodes(); ++place) {
    before_.push_back(before_.back() + static_cast<int>(ranks(steps_.node_at(place)).size()));
  }
}

int GroupNodes::node_of(int rank) const {
  return node_of_rank(first_, rank);
}

int GroupNodes::leader(int node, uint64_t round) const {
  const Range there = ranks(node);
  return static_cast<int>(there.begin) + SharedSlots::leader(round, static_cast<int>(there.size()));
}

int GroupNodes::place_of_rank(int rank) const {
  const int node = node_of(rank);
  return ranks_before(steps_.place(node)) + rank - static_cast<int>(ranks(node).begin);
}

bool GroupNodes::adds_nodes_by_tree() const {
  return blocks_of_nodes_.size() == first_.size() - 1;
}

SharedTensor::SharedTensor(const MpiGroup& node, const at::Tensor& tensor)
    : storage_(tensor.storage().getWeakStorageImpl()), own_(static_cast<char*>(tensor.storage().mutable_data())) {
  const SharedName own = shared_name(tensor);
  const std::vector<std::string> names = node.all_gather({reinterpret_cast<const char*>(&own), sizeof own});
  agreed(node, [&] {
    for (const std::string& text : names) {
      SharedName name;
      VH_ASSERT(text.size() == sizeof name, "a name of memory");
      std::memcpy(&name, text.data(), sizeof name);
      VH_ASSERT(name.bytes == own.bytes, str("a tensor of ", own.bytes, " bytes, and one of ", name.bytes));
      const bool is_own = std::ssize(ranks_) == node.rank();
      ranks_.push_back(is_own ? std::shared_ptr<char>(std::shared_ptr<char>(), own_) : map_shared(name));
    }
  });
}

NodeLink::NodeLink(MpiGroup group, const std::vector<int>& nodes, const SumBlocks& blocks,
                   const TransportOptions& options)
    : GroupNodes(nodes, blocks, options.most_nodes_in_one_step),
      group_(std::move(group)),
      node_(node_of(group_.rank())),
      blocks_in_node_(num_nodes() == 1 ? blocks : SumBlocks{nodes[static_cast<size_t>(node_)]}),
      max_message_bytes_(options.max_message_bytes),
      slots_(on_node(group_, num_nodes(), node_, [&](const MpiGroup& ranks) {
        return SharedSlots(ranks, options.slot_bytes, options.slots_past_caches);
      })) {
  VH_ASSERT(num_ranks() == group_.size(), str("nodes of ", num_ranks(), " ranks for ", group_.size()));
  // An element of every rank's part fits into a slot.
  VH_ASSERT(slots_.slot_bytes() >= 8 * group_.size(), str("slots of ", slots_.slot_bytes(), " bytes"));
}

void NodeLink::count_for(const std::string& axis, const std::vector<int>& machines) {
  axis_ = axis;
  first_of_machine_ = first_ranks(machines);
}

void NodeLink::count_sent(int rank, int64_t bytes) const {
  const auto machine = [&](int of) { return node_of_rank(first_of_machine_, of); };
  if (machine(rank) != machine(group_.rank())) count_bytes_between_nodes(axis_, bytes);
}

void NodeLink::share(const at::Tensor& tensor) {
  const auto freed = [](const auto& one) { return one->is_freed(); };
  shared_.erase(std::remove_if(shared_.begin(), shared_.end(), freed), shared_.end());
  if (num_nodes() == group_.size()) return;
  on_node(group_, num_nodes(), node_, [&](const MpiGroup& node) {
    if (node.size() == 1 || node.min(shared_name(tensor).bytes) == 0) return;
    shared_.push_back(std::make_shared<SharedTensor>(node, tensor));
  });
}

std::shared_ptr<const SharedTensor> NodeLink::shared(const at::Tensor& tensor) const {
  const auto found = std::find_if(shared_.begin(), shared_.end(), [&](const auto& one) { return one->is_of(tensor); });
  return found == shared_.end() ? nullptr : *found;
}

MpiRequests NodeLink::requests() const {
  return {mpi_comm(group_), max_message_bytes_};
}

char* NodeLink::staging(uint64_t round, int64_t bytes) {
  at::Tensor& memory = staging_[round % SharedSlots::kNumSlots];
  if (!memory.defined() || memory.numel() < bytes) {
    const MemoryScope scope(MemoryClass::kCommunication);
    memory = at::Tensor();  // before the larger one is there
    memory = at::empty({bytes}, at::kByte);
  }
  return static_cast<char*>(memory.data_ptr());
}

}  // namespace vit_hybrid::comm
