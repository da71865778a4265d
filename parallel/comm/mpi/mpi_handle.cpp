// Messages posted in pieces, and what their statuses say.
#include "parallel/comm/mpi/mpi_handle.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

constexpr int64_t kNotReceived = -1;

// Calls post(offset, bytes as int) for each piece. The pieces of a message are sent and received in
// the same order, and MPI keeps messages of one pair and tag in order.
template <class Post>
void in_pieces(int64_t bytes, int64_t largest, Post post) {
  for (int64_t offset = 0; offset < bytes; offset += largest) {
    post(offset, static_cast<int>(std::min(largest, bytes - offset)));
  }
}

}  // namespace

void MpiRequests::send(const void* data, int64_t bytes, int peer, int tag) {
  in_pieces(bytes, max_message_bytes_, [&](int64_t offset, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(static_cast<const char*>(data) + offset, count, MPI_BYTE, peer, tag, comm_, &request),
              "MPI_Isend");
    add(request, peer, kNotReceived);
  });
}

void MpiRequests::receive(void* data, int64_t bytes, int peer, int tag) {
  in_pieces(bytes, max_message_bytes_, [&](int64_t offset, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(static_cast<char*>(data) + offset, count, MPI_BYTE, peer, tag, comm_, &request), "MPI_Irecv");
    add(request, peer, count);
  });
}

bool MpiRequests::test() {
  if (requests_.empty()) return true;
  statuses_.resize(requests_.size());
  int complete = 0;
  const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete, statuses_.data());
  if (code == MPI_ERR_IN_STATUS) fail();
  check_mpi(code, "MPI_Testall");
  if (complete == 0) return false;
  for (size_t i = 0; i < requests_.size(); ++i)
    check_received(i);
  requests_.clear();
  peers_.clear();
  received_.clear();
  return true;
}

std::vector<int> MpiRequests::pending_peers() const {
  std::vector<int> peers;
  for (size_t i = 0; i < requests_.size(); ++i) {
    int complete = 0;
    MPI_Status status;
    if (MPI_Request_get_status(requests_[i], &complete, &status) != MPI_SUCCESS) continue;
    if (complete == 0) peers.push_back(peers_[i]);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

void MpiRequests::add(MPI_Request request, int peer, int64_t bytes) {
  requests_.push_back(request);
  peers_.push_back(peer);
  received_.push_back(bytes);
}

void MpiRequests::check_received(size_t index) const {
  if (received_[index] == kNotReceived) return;
  int count = 0;
  check_mpi(MPI_Get_count(&statuses_[index], MPI_BYTE, &count), "MPI_Get_count");
  if (count == received_[index]) return;
  throw Error(ErrorClass::kInternal, str("rank ", world_ranks(comm_)[static_cast<size_t>(peers_[index])], " sent ",
                                         count, " bytes where ", received_[index], " are received"));
}

void MpiRequests::fail() const {
  for (size_t i = 0; i < requests_.size(); ++i) {
    const int code = statuses_[i].MPI_ERROR;
    if (code == MPI_SUCCESS || code == MPI_ERR_PENDING) continue;
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
      throw Error(ErrorClass::kInternal, str("rank ", world_ranks(comm_)[static_cast<size_t>(peers_[i])],
                                             " sent more than the ", received_[i], " bytes that are received"));
    }
    check_mpi(code, received_[i] == kNotReceived ? "MPI_Isend" : "MPI_Irecv");
  }
}

}  // namespace vit_hybrid::comm
