// MachineFile: how fast a kind of machine computes and communicates, as `vit_hybrid calibrate` measured it or as data
// sheets have it, in a file that people can write too.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/json.h"

namespace vit_hybrid::train {

/// A rate (work a second) as a function of sizes, known at the points of a grid.
struct RateTable {
  struct Axis {
    std::string name;
    std::vector<double> points;  ///< ascending, positive
  };
  std::vector<Axis> axes;
  std::vector<double> rates;  ///< positive, at each point of the grid, the last axis fastest
  std::string source;         ///< where the figures are from, for people

  /// The rate for these sizes, one an axis: linear in the logarithms of sizes and rate between the points, that of the
  /// nearest point outside of them.
  double at(const std::vector<double>& sizes) const;
};

/// The tables of one type (or of collectives) by the name of the kind of work.
using RateTables = std::map<std::string, RateTable>;

/// Kinds of work, and the sizes that their rates depend on.
struct WorkKind {
  const char* name;
  const char* unit;               ///< what the rate counts in a second
  std::vector<const char*> axes;  ///< names of the sizes
};
/// All kinds of kernels, in the order of the file: "product_forward", ...
const std::vector<WorkKind>& kernel_kinds();
/// All kinds of messages: "all_reduce", "reduce_scatter", "all_gather", "exchange". Their rates are those of the bus
/// (as nccl-tests has them): the bytes of the larger tensor times 2 (n - 1) / n for a sum, (n - 1) / n for halves of it
/// and 1 for an exchange, a second.
const std::vector<WorkKind>& message_kinds();
/// The factor above, of a group of n ranks.
double bus_factor(const std::string& message_kind, double ranks);

/// A node as a job fills it: rates are those of one rank while all of them do the same.
struct Population {
  int ranks = 1;                                 ///< a node
  int threads = 1;                               ///< a rank
  std::map<std::string, RateTables> types = {};  ///< of kernels by type: "fp32", "bf16", "fp16", "fp64"
  RateTables messages = {};                      ///< between ranks of a node
  double operation_s = 0.0;                      ///< seconds that a layer costs beside its kernels
  double reading_bytes_per_s = 0.0;              ///< of HDF5 files that no cache holds; 0: not known
};

/// What joins the nodes.
struct NodeNetwork {
  double bytes_per_s = 0.0;  ///< that leave a node at most; 0: not known
  double latency_s = 0.0;    ///< of a message
  double message_s = 0.0;    ///< that a message takes of the rank that sends it, and as much of the one that gets it
  /// That a byte which comes and goes takes of the rank's computing meanwhile; nothing: not known, and all its time.
  std::optional<double> byte_s;
  /// That come to a rank at most between two looks after its messages; nothing: as many as the network carries.
  std::optional<double> look_bytes;
  std::string source = {};
};

/// What the ranks of a node share on the host, or what a GPU has.
struct Memory {
  double bytes = 0.0;  ///< 0: not known
  std::string source = {};
};

struct MachineFile {
  std::string name;
  std::string device = "cpu";  ///< or "cuda"
  int cores = 1;               ///< that a node has for its ranks
  Memory memory = {};
  std::vector<Population> populations;
  NodeNetwork between_nodes = {};
  std::string source = {};  ///< where the numbers of cores, ranks and threads are from

  /// What each of so many ranks on a node may take of its memory, on the host beside the some 140 MiB that a process
  /// has at its start; 0: not known. GPUs are shared by `ranks_per_gpu`, or by as many as there are for each.
  double bytes_of_rank(int on_node, int ranks_per_gpu) const;

  /// The population whose ranks and threads are nearest to these, by their ratios, threads first.
  const Population& nearest(int ranks, int threads) const;
};

/// Reads the text of a file named `path` in messages. Error(kBadData) for what is no such file, names the first figure
/// that is missing, of another kind, not finite or not positive.
MachineFile parse_machine_file(const std::string& text, const std::string& path);
/// Its text. parse_machine_file() gives the same figures back.
std::string to_text(const MachineFile& machine);

}  // namespace vit_hybrid::train
