// Mixed-radix arithmetic of ranks and coordinates, with its refusals; the groups, split off the world by the lowest
// rank of each.
#include "parallel/mesh/device_mesh.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::mesh {

namespace {

struct AxisNames {
  std::string_view option;
  std::string_view name;
};
// Of groups, of which the axes are the first.
constexpr std::array<AxisNames, kNumGroups> kNames = {
    {{"dp", "data"}, {"tp", "tensor"}, {"pp", "pipeline"}, {"shard", "shard"}, {"replica", "replica"}}};

std::vector<std::string> split_at_hyphens(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == '-') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::optional<Axis> find_axis(const std::string& option) {
  for (const Axis axis : kAxes) {
    if (axis_option(axis) == option) return axis;
  }
  return std::nullopt;
}

Error order_error(const std::string& order) {
  return Error(ErrorClass::kUsage, str("--order ", order, " does not name each of dp, tp and pp once"),
               str("give them with hyphens, the fastest first; the default is ", kDefaultOrder));
}

std::array<Axis, kNumAxes> parse_order(const std::string& order) {
  const auto words = split_at_hyphens(order);
  std::array<Axis, kNumAxes> axes{};
  if (words.size() != axes.size()) throw order_error(order);
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = find_axis(words[i]);
    const auto known_end = axes.begin() + static_cast<std::ptrdiff_t>(i);
    if (!axis || std::find(axes.begin(), known_end, *axis) != known_end) throw order_error(order);
    axes[i] = *axis;
  }
  return axes;
}

constexpr int kLargestDegree = 1 << 20;

void check_degree(Axis axis, int degree) {
  if (degree >= 1 && degree <= kLargestDegree) return;
  throw Error(ErrorClass::kUsage, str("--", axis_option(axis), " ", degree, " is not a degree"),
              str("allowed are 1 to ", kLargestDegree, axis == Axis::kData ? ", or auto" : ""));
}

// Degrees are ints, their product need not be one.
int64_t product(const Coordinate& degrees) {
  int64_t ranks = 1;
  for (const int degree : degrees)
    ranks *= degree;
  return ranks;
}

std::string product_text(const Coordinate& degrees) {
  std::vector<std::string> factors;
  for (const Axis axis : kAxes)
    factors.push_back(str(axis_option(axis), " ", on(degrees, axis)));
  return join(factors, " x ");
}

}  // namespace

std::string_view axis_option(Axis axis) {
  return kNames[static_cast<size_t>(axis)].option;
}
std::string_view axis_name(Axis axis) {
  return kNames[static_cast<size_t>(axis)].name;
}
std::string_view group_option(Group group) {
  return kNames[static_cast<size_t>(group)].option;
}
std::string_view group_name(Group group) {
  return kNames[static_cast<size_t>(group)].name;
}

std::optional<Group> group_named(std::string_view name) {
  const auto* const found =
      std::find_if(kGroups.begin(), kGroups.end(), [&](Group group) { return group_name(group) == name; });
  return found == kGroups.end() ? std::nullopt : std::optional(*found);
}

ParallelDims::ParallelDims(int dp, int tp, int pp, const std::string& order, int shard)
    : order_(parse_order(order)), shard_(shard) {
  on(degrees_, Axis::kData) = dp;
  on(degrees_, Axis::kTensor) = tp;
  on(degrees_, Axis::kPipeline) = pp;
  for (const Axis axis : kAxes)
    check_degree(axis, degree(axis));
  VH_ASSERT(shard >= 1 && dp % shard == 0, str("parts of ", shard, " ranks on a data axis of ", dp));
}

int ParallelDims::size() const {
  return static_cast<int>(product(degrees_));
}

Coordinate ParallelDims::coordinate(int rank) const {
  VH_ASSERT(rank >= 0 && rank < size(), str("rank ", rank, " of ", size()));
  Coordinate coordinate{};
  for (const Axis axis : order_) {
    on(coordinate, axis) = rank % degree(axis);
    rank /= degree(axis);
  }
  return coordinate;
}

int ParallelDims::rank(const Coordinate& coordinate) const {
  int rank = 0;
  int stride = 1;
  for (const Axis axis : order_) {
    VH_ASSERT(on(coordinate, axis) >= 0 && on(coordinate, axis) < degree(axis),
              str(axis_name(axis), " coordinate ", on(coordinate, axis), " of ", degree(axis)));
    rank += on(coordinate, axis) * stride;
    stride *= degree(axis);
  }
  return rank;
}

std::vector<int> ParallelDims::group(int rank, const std::vector<Axis>& axes) const {
  std::vector<Coordinate> members = {coordinate(rank)};
  for (const Axis axis : axes) {
    const std::vector<Coordinate> others = std::exchange(members, {});
    for (Coordinate member : others) {
      for (on(member, axis) = 0; on(member, axis) < degree(axis); ++on(member, axis)) {
        members.push_back(member);
      }
    }
  }
  std::vector<int> ranks;
  std::transform(members.begin(), members.end(), std::back_inserter(ranks),
                 [this](const Coordinate& member) { return this->rank(member); });
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<int> ParallelDims::members(int rank, Group group) const {
  if (group < Group::kShard) {
    return this->group(rank, {static_cast<Axis>(group)});
  }
  if (!cuts_data()) {
    return {rank};
  }
  const int at = on(coordinate(rank), Axis::kData);
  const std::vector<int> all = this->group(rank, {Axis::kData});
  std::vector<int> ranks;
  for (int other = 0; other < data(); ++other) {
    if (group == Group::kShard ? other / shard_ == at / shard_ : other % shard_ == at % shard_) {
      ranks.push_back(all[static_cast<size_t>(other)]);
    }
  }
  return ranks;
}

std::string ParallelDims::text() const {
  return product_text(degrees_);
}

std::vector<int> blocks_of(const std::vector<int>& members, const std::vector<int>& blocks) {
  std::vector<int> sizes;
  size_t member = 0;
  int end = 0;
  for (const int block : blocks) {
    end += block;
    const size_t first = member;
    while (member < members.size() && members[member] < end)
      ++member;
    if (member > first) sizes.push_back(static_cast<int>(member - first));
  }
  VH_ASSERT(member == members.size(), str("blocks of ", end, " ranks"));
  return sizes;
}

namespace {

// Where a few numbers are added up; an element of every rank's part fits into a slot.
comm::TransportOptions for_few_numbers(comm::TransportOptions options, int num_ranks) {
  constexpr int64_t kMultiple = 64;
  options.slot_bytes_between_nodes = std::max(options.slot_bytes, kMultiple * num_ranks);
  return options;
}

// Over all ranks: a step's sums for the norm, and what it agrees on.
comm::TransportOptions options_of_world(const ParallelDims& dims, const comm::TransportOptions& everywhere) {
  comm::TransportOptions own = for_few_numbers(everywhere, dims.size());
  own.connects_neighbours = false;
  own.warm_up_bytes = 0;
  own.most_blocks = 2;
  return own;
}

// Of a group of `members`. `everywhere` has the world's nodes and blocks.
comm::TransportOptions options_of(const ParallelDims& dims, Group group, const std::vector<int>& members,
                                  const comm::TransportOptions& everywhere) {
  comm::TransportOptions own = everywhere;
  own.connects_neighbours = group == Group::kPipeline;  // stages exchange, nobody else does
  // Where the data axis is cut, all that is long goes over its parts; and messages of stages are none of the rounds'.
  const bool is_cut = group == Group::kData && dims.cuts_data();
  if (is_cut || group == Group::kPipeline) {
    own = for_few_numbers(own, static_cast<int>(members.size()));
  }
  if (is_cut) own.warm_up_bytes = 0;
  if (group == Group::kTensor || group == Group::kPipeline) own.most_blocks = 0;
  own.nodes = blocks_of(members, everywhere.nodes);
  own.sum_blocks = everywhere.sum_blocks.empty() ? own.nodes : blocks_of(members, everywhere.sum_blocks);
  return own;
}

int place_among(const std::vector<int>& members, int rank) {
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

}  // namespace

int64_t own_bytes_of_groups(const ParallelDims& dims, int rank, c10::DeviceType device,
                            const comm::TransportOptions& options, const LongestSums& longest) {
  if (options.nodes.size() == 1) return 0;
  int64_t bytes = comm::host_group_bytes(rank, options_of_world(dims, options), {});
  for (const Group group : kGroups) {
    const std::vector<int> members = dims.members(rank, group);
    if (device != c10::DeviceType::CPU || members.size() == 1) continue;
    bytes += comm::host_group_bytes(place_among(members, rank), options_of(dims, group, members, options),
                                    longest[static_cast<size_t>(group)]);
  }
  return bytes;
}

int num_sharing_ranks(const ParallelDims& dims, int rank, Group group, const comm::TransportOptions& options) {
  const std::vector<int> members = dims.members(rank, group);
  return comm::num_sharing_ranks(place_among(members, rank), options_of(dims, group, members, options));
}

DeviceMesh::DeviceMesh(const ParallelDims& dims, const comm::MpiGroup& world, c10::Device device,
                       const comm::TransportOptions& options)
    : dims_(dims),
      rank_(world.rank()),
      coordinate_(dims.coordinate(world.rank())),
      device_(device),
      nodes_(options.nodes.empty() ? world.node_sizes() : options.nodes),
      sum_blocks_(options.sum_blocks.empty() ? nodes_ : options.sum_blocks),
      model_(world.split(dims.group(world.rank(), {Axis::kTensor, Axis::kPipeline}).front())) {
  VH_ASSERT(world.size() == dims.size(), str(dims.text(), " on ", world.size(), " ranks"));
  comm::TransportOptions everywhere = options;
  everywhere.nodes = nodes_;
  everywhere.sum_blocks = sum_blocks_;
  const comm::TransportOptions of_world = options_of_world(dims, everywhere);
  world_ = comm::make_communicator("world", world.duplicate(), device, nullptr, of_world);
  if (!device.is_cpu()) {
    host_world_ = comm::make_communicator("host world", world.duplicate(), at::kCPU, nullptr, of_world);
  }
  for (const Group group : kGroups) {
    if (group >= Group::kShard && !dims.cuts_data()) continue;
    const std::vector<int> members = dims_.members(rank_, group);
    const int color = members.front();  // a group is known by its lowest rank
    groups_[static_cast<size_t>(group)] =
        comm::make_communicator(std::string(group_name(group)), world.split(color), device, world_.get(),
                                options_of(dims, group, members, everywhere));
  }
}

}  // namespace vit_hybrid::mesh
