// WatchLink: how the watchdogs of several nodes talk, by TCP of their own.
//
// Nobody uses it before somebody waits too long. Then one process of the lowest node that does so asks one of each
// other node, and all where one does not answer. Processes that take the question and do not answer stand in the table
// too; what passed while others were asked is nobody's fault; who was to tell and does not within 3 s is replaced by
// one that knows the same. Before MPI_Init has ended, nodes know their own processes alone.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/watchdog.h"

namespace vit_hybrid::comm {

/// Every process listens, and a thread of it answers those who know the job's random word; nobody is connected unless
/// somebody has waited too long. Then one process connects once to each other node: to its first process, and where
/// that one does not answer (it may be the one that has been stopped) to all of them. Whoever answers speaks for its
/// node, since all its processes see the same board.
class WatchLink {
 public:
  /// Tells all ranks the addresses of all others. Never fails: who has no address cannot be asked, and that is told
  /// when it matters. Collective over `world`.
  WatchLink(const MpiGroup& world, int node, std::function<std::vector<Standing>()> own_standings,
            const std::vector<std::string>& addresses = own_addresses());
  /// Stops to answer.
  ~WatchLink();
  WatchLink(const WatchLink&) = delete;
  WatchLink& operator=(const WatchLink&) = delete;

  /// Where other machines reach this one: no loopback, no link-local ones.
  static std::vector<std::string> own_addresses();

  /// From here on this node's standings are unknown: they are asked for no more.
  void forget_standings();

  /// How all nodes stand; bounded by patience_with_nodes(). From any thread.
  JobStandings ask(std::vector<Standing> own) const;
  /// Whether this process may speak for the job: the first node that answers decides. From any thread.
  bool claim() const;
  /// Takes the claims of all nodes, so that nobody speaks, or says that this node does not answer, once it has ended
  /// the job. From any thread.
  void silence_others() const;

  /// A process of the job that can be asked.
  struct Place {
    int rank;
    int node;
    std::string host;
    int pid;
    int port;
    std::vector<std::string> addresses;
  };
  /// An attempt to ask one.
  struct Question {
    const Place* place;
    std::string address;
    int fd = -1;
    bool is_sent = false;
    bool is_over = false;
    bool is_refused = false;  ///< there is no such process any more
    std::string answer;
    std::string problem;
  };

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  void listen();
  void stop();
  void tell_addresses(const MpiGroup& world, const std::vector<std::string>& addresses);
  void serve();
  void answer(int fd);
  std::string answer_to(const std::string& what, int asking_node, int asking_rank);
  void put(std::vector<Question>& questions, const std::string& what, Deadline deadline) const;
  std::vector<Question> questions_to(int node, size_t first, size_t last) const;
  std::vector<Standing> ended_standings(int node) const;
  std::vector<Standing> mute_standings(int node, const std::set<int>& mute, const std::vector<Standing>& known) const;
  std::string remark_on(int node, const std::string& problem) const;

  int node_;
  int num_nodes_ = 1;
  std::string word_;
  std::vector<std::vector<Place>> places_;  // by node

  int listener_ = -1;
  int port_ = 0;
  int stop_event_ = -1;
  std::mutex mutex_;
  std::function<std::vector<Standing>()> own_standings_;
  std::thread thread_;
};

}  // namespace vit_hybrid::comm
