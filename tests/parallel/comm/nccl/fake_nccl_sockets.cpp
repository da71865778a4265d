// Communicators, calls and groups of calls; fake_socket_mesh.h moves the bytes.
#include "tests/parallel/comm/nccl/fake_nccl_sockets.h"

#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/comm/mpi/rank_order.h"
#include "src/base/text.h"
#include "tests/parallel/comm/nccl/fake_device.h"
#include "tests/parallel/comm/nccl/fake_flight.h"
#include "tests/parallel/comm/nccl/fake_socket_mesh.h"

using vit_hybrid::comm::ReduceOp;
using namespace vit_hybrid::testing;

struct ncclComm {
  ncclComm(const std::string& name, int rank, int size) : mesh(name, rank, size) {}

  SocketMesh mesh;
  std::atomic<ncclResult_t> state = ncclInProgress;
  std::atomic<int> num_launches = 0;  // that are not done
  int num_recorded = 0;               // launches that graphs have
  int num_splits = 0;
  std::shared_ptr<FakeSplit> split;  // none of one that was split off nowhere
  std::jthread thread;               // connects it, or splits others off
};

namespace {

constexpr int kVersion = 22809;

struct Reduction {
  at::ScalarType type;
  ReduceOp op;
};

// What one call sends and receives, in messages of one size.
struct Call {
  const char* name;
  std::unique_ptr<Flight> flight;
  size_t bytes = 0;                        // that come in or go out
  size_t part = 0;                         // of a message
  std::vector<std::pair<int, size_t>> to;  // ranks, and where in the input their part begins
  std::vector<int> from;                   // ranks whose parts make the output, in order; this one may be among them
  size_t own_part = 0;                     // where in the input this rank's begins
  std::optional<Reduction> reduction;      // else the parts follow each other
};

// Calls of one communicator that begin together.
struct Launch {
  ncclComm_t comm;
  FakeStream* stream;
  std::vector<Call> calls;
};

// Of the thread that has NcclComm::enter().
int g_group_depth = 0;
std::vector<Launch> g_group;
std::vector<ncclComm_t> g_aborted;

struct Type {
  at::ScalarType type;
  size_t bytes;
};

Type type_of(ncclDataType_t type) {
  static const std::map<ncclDataType_t, at::ScalarType> types = {
      {ncclDouble, at::kDouble}, {ncclFloat, at::kFloat}, {ncclHalf, at::kHalf},  {ncclBfloat16, at::kBFloat16},
      {ncclInt64, at::kLong},    {ncclInt32, at::kInt},   {ncclUint8, at::kByte},
  };
  const at::ScalarType found = types.at(type);
  return {found, at::elementSize(found)};
}

Call make_call(const char* name, cudaStream_t stream, const void* input, size_t input_bytes, void* output,
               size_t output_bytes) {
  Call call;
  call.name = name;
  call.bytes = std::max(input_bytes, output_bytes);
  call.flight = std::make_unique<Flight>(name, FakeStream::of(stream),
                                         std::span(static_cast<const std::byte*>(input), input_bytes),
                                         std::span(static_cast<std::byte*>(output), output_bytes));
  return call;
}

// Every rank with every other one: parts of the input that begin `step` bytes after each other (0: all of it).
void connect_all(Call& call, const ncclComm& comm, size_t part, size_t step) {
  call.part = part;
  for (int peer = 0; peer < comm.mesh.size(); ++peer) {
    call.from.push_back(peer);
    if (peer != comm.mesh.rank()) call.to.emplace_back(peer, step * static_cast<size_t>(peer));
  }
  call.own_part = step * static_cast<size_t>(comm.mesh.rank());
}

std::vector<std::byte> output_of(const Call& call, const std::vector<const void*>& parts) {
  std::vector<std::byte> output(call.reduction ? call.part : call.part * parts.size());
  if (call.reduction) {
    const auto count = static_cast<int64_t>(call.part / at::elementSize(call.reduction->type));
    vit_hybrid::comm::reduce_in_rank_order(call.reduction->type, call.reduction->op, parts, output.data(), count);
    return output;
  }
  for (size_t i = 0; i < parts.size(); ++i)
    std::memcpy(output.data() + i * call.part, parts[i], call.part);
  return output;
}

// On the stream. What has failed stays in flight until the communicator is aborted, as a kernel does that waits for its
// peer.
void run(ncclComm& comm, std::vector<Call> calls) {
  std::vector<Message> sent;
  std::vector<Message> received;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::vector<const void*>> parts(calls.size());  // of each call, in the order of `from`
  for (size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    auto* const input = const_cast<std::byte*>(call.flight->begin().data());
    for (const auto& [peer, place] : call.to)
      sent.push_back({peer, call.name, input + place, call.part});
    for (const int peer : call.from) {
      if (peer == comm.mesh.rank()) {
        parts[i].push_back(input + call.own_part);
      } else {
        memory.emplace_back(call.part);
        received.push_back({peer, call.name, memory.back().data(), call.part});
        parts[i].push_back(memory.back().data());
      }
    }
  }
  const auto moved = comm.mesh.move(sent, received);
  if (moved == SocketMesh::Moved::kAll) {
    for (size_t i = 0; i < calls.size(); ++i)
      calls[i].flight->end(output_of(calls[i], parts[i]));
    return;
  }
  comm.state = moved == SocketMesh::Moved::kPeerIsGone ? ncclRemoteError : ncclInternalError;
  comm.mesh.wait_for_abort();
  std::fprintf(stderr, "fake NCCL: %s is ended by an abort\n", calls.front().name);
}

void put(Launch launch) {
  launch.stream->begin_operation(launch.calls.front().name);
  if (launch.stream->is_recorded()) {
    ++launch.comm->num_recorded;
    launch.stream->record_operation({launch.comm, [](ncclComm_t comm) { --comm->num_recorded; }});
    return;
  }
  auto calls = std::make_shared<std::vector<Call>>(std::move(launch.calls));
  ++launch.comm->num_launches;
  launch.stream->put([comm = launch.comm, calls] {
    run(*comm, std::exchange(*calls, {}));
    --comm->num_launches;
    comm->num_launches.notify_all();
  });
}

ncclResult_t start(ncclComm_t comm, cudaStream_t stream, Call call) {
  FakeStream* const own = &FakeStream::of(stream);
  if (comm->split) comm->split->most_bytes = std::max(comm->split->most_bytes, call.bytes);
  const auto has_both = [&](const Launch& launch) { return launch.comm == comm && launch.stream == own; };
  auto found = std::find_if(g_group.begin(), g_group.end(), has_both);
  if (found == g_group.end()) found = g_group.insert(found, Launch{comm, own, {}});
  found->calls.push_back(std::move(call));
  return g_group_depth > 0 ? ncclSuccess : (ncclGroupStart(), ncclGroupEnd());
}

struct Place {
  int color;
  int key;
  int rank;  // in the parent
};

// Of all ranks of the parent; none where it was aborted.
std::vector<Place> gather_places(SocketMesh& parent, Place own) {
  constexpr const char* kName = "ncclCommSplit";
  std::vector<Place> places(static_cast<size_t>(parent.size()), own);
  std::vector<Message> sent;
  std::vector<Message> received;
  for (int peer = 0; peer < parent.size(); ++peer) {
    if (peer == own.rank) continue;
    sent.push_back({peer, kName, reinterpret_cast<std::byte*>(&own), sizeof own});
    received.push_back({peer, kName, reinterpret_cast<std::byte*>(&places[static_cast<size_t>(peer)]), sizeof own});
  }
  return parent.move(sent, received) == SocketMesh::Moved::kAll ? places : std::vector<Place>();
}

// Null without a color, and where the parent or the child is aborted.
ncclComm_t split(ncclComm& parent, int color, int key, std::shared_ptr<FakeSplit> as) {
  auto places = gather_places(parent.mesh, {color, key, parent.mesh.rank()});
  if (color == NCCL_SPLIT_NOCOLOR || places.empty()) return nullptr;
  std::erase_if(places, [color](const Place& place) { return place.color != color; });
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.key < b.key; });
  const auto is_own = [&](const Place& place) { return place.rank == parent.mesh.rank(); };
  const auto rank = std::find_if(places.begin(), places.end(), is_own) - places.begin();
  const std::string name = vit_hybrid::str(parent.mesh.name(), ".", parent.num_splits, ".", color);
  auto child = std::make_unique<ncclComm>(name, static_cast<int>(rank), static_cast<int>(places.size()));
  if (!child->mesh.connect()) return nullptr;
  child->split = std::move(as);
  child->state = ncclSuccess;
  return child.release();
}

}  // namespace

namespace vit_hybrid::testing {

FakeNcclSockets& fake_nccl_sockets() {
  static FakeNcclSockets fake;
  return fake;
}

}  // namespace vit_hybrid::testing

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = kVersion;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "internal error";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int number = 0;
  std::snprintf(id->internal, sizeof id->internal, "%d.%d", static_cast<int>(getpid()), number++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;  // the product connects without blocking
  *comm = new ncclComm(id.internal, rank, size);
  (*comm)->thread = std::jthread([comm = *comm] {
    if (comm->mesh.connect()) comm->state = ncclSuccess;
  });
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  if (parent->state != ncclSuccess) return ncclInvalidArgument;
  const auto as = std::make_shared<FakeSplit>(FakeSplit{config->maxCTAs});
  fake_nccl_sockets().splits.push_back(as);
  parent->state = ncclInProgress;
  ++parent->num_splits;
  const auto& other = fake_nccl_sockets().other_color;
  const int taken = other == nullptr || color == NCCL_SPLIT_NOCOLOR ? color : other(color);
  parent->thread = std::jthread([=] {
    *child = split(*parent, taken, key, as);
    parent->state = ncclSuccess;
  });
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->mesh.rank();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->mesh.size();
  return ncclSuccess;
}

// NCCL's waits for the end of all graphs that have operations of the communicator.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm->num_recorded == 0) {
    delete comm;
  } else {
    report_fault("ncclCommDestroy waits for a graph, which nobody ends");
  }
  return ncclSuccess;
}

// At the end of its group it waits for what is in flight, as NCCL does for its kernels.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ncclGroupStart();
  comm->mesh.abort();
  g_aborted.push_back(comm);
  return ncclGroupEnd();
}

ncclResult_t ncclGroupStart() {
  ++g_group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--g_group_depth > 0) return ncclSuccess;
  for (Launch& launch : std::exchange(g_group, {}))
    put(std::move(launch));
  for (const ncclComm_t comm : std::exchange(g_aborted, {})) {
    while (const int open = comm->num_launches)
      comm->num_launches.wait(open);
  }
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto [scalar, size] = type_of(type);
  Call call = make_call("ncclAllReduce", stream, input, count * size, output, count * size);
  connect_all(call, *comm, count * size, 0);
  call.reduction = {scalar, op == ncclSum ? ReduceOp::kSum : ReduceOp::kMax};
  return start(comm, stream, std::move(call));
}

ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const auto [scalar, size] = type_of(type);
  const size_t part = count * size;
  Call call =
      make_call("ncclReduceScatter", stream, input, part * static_cast<size_t>(comm->mesh.size()), output, part);
  connect_all(call, *comm, part, part);
  call.reduction = {scalar, op == ncclSum ? ReduceOp::kSum : ReduceOp::kMax};
  return start(comm, stream, std::move(call));
}

ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t part = count * type_of(type).bytes;
  Call call = make_call("ncclAllGather", stream, input, part, output, part * static_cast<size_t>(comm->mesh.size()));
  connect_all(call, *comm, part, 0);
  return start(comm, stream, std::move(call));
}

ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * type_of(type).bytes;
  Call call = make_call("ncclBroadcast", stream, input, bytes, output, bytes);
  call.part = bytes;
  call.from = {root};
  for (int peer = 0; root == comm->mesh.rank() && peer < comm->mesh.size(); ++peer) {
    if (peer != root) call.to.emplace_back(peer, 0);
  }
  return start(comm, stream, std::move(call));
}

constexpr const char* kSendRecv = "ncclSend and ncclRecv";

ncclResult_t ncclSend(const void* input, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const size_t bytes = count * type_of(type).bytes;
  Call call = make_call(kSendRecv, stream, input, bytes, nullptr, 0);
  call.part = bytes;
  call.to = {{peer, 0}};
  return start(comm, stream, std::move(call));
}

ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * type_of(type).bytes;
  Call call = make_call(kSendRecv, stream, nullptr, 0, output, bytes);
  call.part = bytes;
  call.from = {peer};
  return start(comm, stream, std::move(call));
}

}  // extern "C"
