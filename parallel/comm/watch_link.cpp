// WatchLink: a listener, a thread that answers, and questions to many at a time.
#include "parallel/comm/watch_link.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <sstream>
#include <utility>

#include "parallel/comm/failure.h"
#include "parallel/comm/host_task.h"
#include "parallel/comm/node_board.h"
#include "src/base/host.h"
#include "src/base/signals.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPatienceWithFirst{450};
constexpr milliseconds kPatienceWithClaim{600};
constexpr milliseconds kPatienceWithCaller{300};
constexpr milliseconds kPatienceWithSilence{250};
constexpr std::chrono::duration<int, std::milli> kPauseWithoutDescriptors{50};
constexpr size_t kMostAddresses = 4;
constexpr size_t kMostProcessesAsked = 16;  // of a node
constexpr size_t kMostAtOnce = 200;
constexpr size_t kMostBytesOfQuestion = 256;
constexpr size_t kMostBytesOfAnswer = size_t{16} << 20;
constexpr const char* kGreeting = "vit_hybrid-watch";
constexpr const char* kEnd = "end\n";
constexpr const char* kNoAnswer = "it does not answer";

std::string random_word() {
  std::random_device device;
  std::ostringstream out;
  for (int i = 0; i < 4; ++i)
    out << std::hex << device();
  return out.str();
}

bool is_of_use(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0 || (entry.ifa_flags & IFF_LOOPBACK) != 0)
    return false;
  if (entry.ifa_addr->sa_family == AF_INET) return true;
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr);
}

void set_timeouts(int fd, milliseconds patience) {
  const timeval time{patience.count() / 1000, (patience.count() % 1000) * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

bool send_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t sent = ::send(fd, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    done += static_cast<size_t>(sent);
  }
  return true;
}

// A socket that is connecting, or -1 with the reason in errno.
int begin_connection(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    errno = EADDRNOTAVAIL;
    return -1;
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const bool fails = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS;
  const int error = errno;
  freeaddrinfo(found);
  if (fails) close(fd);
  errno = error;
  return fails ? -1 : fd;
}

std::string error_text(int error) {
  return std::strerror(error);
}

using Question = WatchLink::Question;

void end(Question& question, std::string problem) {
  question.problem = std::move(problem);
  question.is_over = true;
  close(std::exchange(question.fd, -1));
}

// The socket of `question` is ready: sends what is asked, or reads on.
void go_on(Question& question, const std::string& text) {
  if (!question.is_sent) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(question.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    question.is_refused = error == ECONNREFUSED;
    if (error != 0) return end(question, error_text(error));
    if (!send_all(question.fd, text)) return end(question, error_text(errno));
    question.is_sent = true;
    return;
  }
  char buffer[65536];
  const ssize_t got = ::recv(question.fd, buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return end(question, got < 0 ? error_text(errno) : "the connection was closed");
  question.answer.append(buffer, static_cast<size_t>(got));
  if (question.answer.ends_with(kEnd)) return end(question, "");
  if (question.answer.size() > kMostBytesOfAnswer) end(question, "the answer is too long");
}

// Of a process that has not told itself how it stands.
Standing standing_at(const WatchLink::Place& place, Standing::State state) {
  Standing standing;
  standing.rank = place.rank;
  standing.pid = place.pid;
  standing.host = place.host;
  standing.state = state;
  return standing;
}

bool is_answered(const Question& question) {
  return question.is_over && question.problem.empty();
}

}  // namespace

std::vector<std::string> WatchLink::own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (!is_of_use(*entry)) continue;
    const bool is_four = entry->ifa_addr->sa_family == AF_INET;
    char text[NI_MAXHOST] = "";
    const socklen_t size = is_four ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(entry->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    addresses.insert(is_four ? addresses.begin() : addresses.end(), text);
  }
  freeifaddrs(list);
  addresses.resize(std::min(addresses.size(), kMostAddresses));
  return addresses;
}

WatchLink::WatchLink(const MpiGroup& world, int node, std::function<std::vector<Standing>()> own_standings,
                     const std::vector<std::string>& addresses)
    : node_(node), own_standings_(std::move(own_standings)) {
  word_ = world.broadcast(random_word(), 0);
  listen();
  stop_event_ = eventfd(0, EFD_CLOEXEC);
  // Before others know the address: who has it may ask before this process has all of theirs.
  if (listener_ >= 0 && stop_event_ >= 0) thread_ = std::thread([this] { serve(); });
  try {
    tell_addresses(world, addresses);
  } catch (...) {
    stop();
    throw;
  }
}

WatchLink::~WatchLink() {
  stop();
}

void WatchLink::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_event_, &one, sizeof one);
    thread_.join();
  }
  if (listener_ >= 0) close(listener_);
  if (stop_event_ >= 0) close(stop_event_);
}

void WatchLink::forget_standings() {
  const std::lock_guard lock(mutex_);
  own_standings_ = nullptr;
}

// At a port that the system picks, for both kinds of addresses where the system has them.
void WatchLink::listen() {
  for (const int family : {AF_INET6, AF_INET}) {
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const int off = 0;
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    auto* const any = reinterpret_cast<sockaddr*>(&address);  // all zeros: any address, any port
    if (bind(fd, any, size) == 0 && ::listen(fd, SOMAXCONN) == 0 && getsockname(fd, any, &size) == 0) {
      listener_ = fd;
      port_ = ntohs(family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(any)->sin6_port
                                       : reinterpret_cast<sockaddr_in*>(any)->sin_port);
      return;
    }
    close(fd);
  }
}

void WatchLink::tell_addresses(const MpiGroup& world, const std::vector<std::string>& addresses) {
  const auto texts =
      world.all_gather(str(node_, " ", host_name(), " ", getpid(), " ", port_, " ", join(addresses, " ")));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream words(texts[rank]);
    Place place{static_cast<int>(rank), 0, "", 0, 0, {}};
    words >> place.node >> place.host >> place.pid >> place.port;
    for (std::string address; words >> address;)
      place.addresses.push_back(address);
    num_nodes_ = std::max(num_nodes_, place.node + 1);
    places_.resize(static_cast<size_t>(num_nodes_));
    places_[static_cast<size_t>(place.node)].push_back(std::move(place));
  }
}

void WatchLink::serve() {
  block_signals_in_this_thread();
  for (;;) {
    std::array<pollfd, 2> events{{{listener_, POLLIN, 0}, {stop_event_, POLLIN, 0}}};
    if (poll(events.data(), events.size(), -1) < 0 && errno != EINTR) return;
    if (events[1].revents != 0) return;
    if (events[0].revents == 0) continue;
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      poll(&events[1], 1, kPauseWithoutDescriptors.count());  // the caller waits in the queue until there is one
      continue;
    }
    set_timeouts(fd, kPatienceWithCaller);
    answer(fd);
    close(fd);
  }
}

// One line is asked: the greeting, the job's word, what, and the node and rank that ask.
void WatchLink::answer(int fd) {
  std::string line;
  while (line.size() < kMostBytesOfQuestion && !line.ends_with('\n')) {
    char buffer[kMostBytesOfQuestion];
    const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0) return;
    line.append(buffer, static_cast<size_t>(got));
  }
  std::istringstream words(line);
  std::string greeting;
  std::string word;
  std::string what;
  int asking_node = -1;
  int asking_rank = -1;
  if (!(words >> greeting >> word >> what >> asking_node >> asking_rank) || greeting != kGreeting || word != word_)
    return;
  send_all(fd, str(kGreeting, " ", node_, "\n", answer_to(what, asking_node, asking_rank), kEnd));
}

std::string WatchLink::answer_to(const std::string& what, int asking_node, int asking_rank) {
  BoardHeader& header = *board().header;
  if (what == "claim") {
    if (!claim_board(asking_rank)) return "taken\n";
    header.told = 1;  // it tells the message for this node too
    return "granted\n";
  }
  if (asking_node < node_) ++header.questions;
  const std::lock_guard lock(mutex_);
  return own_standings_ == nullptr ? "" : to_text(own_standings_());
}

std::vector<Question> WatchLink::questions_to(int node, size_t first, size_t last) const {
  std::vector<Question> questions;
  const auto& places = places_[static_cast<size_t>(node)];
  for (size_t i = first; i < std::min(last, places.size()); ++i) {
    for (const std::string& address : places[i].addresses)
      questions.push_back({&places[i], address, -1, false, false, false, "", ""});
  }
  return questions;
}

// Asks all of them at the same time, until the deadline, or each node has answered. What has come by then counts, also
// where this thread had no processor.
void WatchLink::put(std::vector<Question>& questions, const std::string& what, Deadline deadline) const {
  const std::string text = str(kGreeting, " ", word_, " ", what, " ", node_, " ", process_place().rank, "\n");
  std::set<int> open;
  for (Question& question : questions) {
    open.insert(question.place->node);
    question.fd = begin_connection(question.address, question.place->port);
    question.is_over = question.fd < 0;
    question.is_refused = question.is_over && errno == ECONNREFUSED;
    if (question.is_over) question.problem = error_text(errno);
  }
  while (!open.empty()) {
    std::vector<pollfd> events;
    std::vector<Question*> asked;
    for (Question& question : questions) {
      if (question.is_over || open.count(question.place->node) == 0) continue;
      events.push_back({question.fd, static_cast<short>(question.is_sent ? POLLIN : POLLOUT), 0});
      asked.push_back(&question);
    }
    const auto left = std::max<int64_t>(std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count(), 0);
    if (events.empty() || poll(events.data(), events.size(), static_cast<int>(left)) <= 0) break;
    for (size_t i = 0; i < events.size(); ++i) {
      if (events[i].revents == 0) continue;
      Question& question = *asked[i];
      go_on(question, text);
      // Another node may have the same address as ours, a bridge of containers.
      const std::string greeting = str(kGreeting, " ", question.place->node, "\n");
      if (!is_answered(question)) continue;
      if (question.answer.starts_with(greeting)) {
        question.answer =
            question.answer.substr(greeting.size(), question.answer.size() - greeting.size() - strlen(kEnd));
        open.erase(question.place->node);
      } else {
        question.problem = "the answer is of another process";
      }
    }
  }
  for (Question& question : questions) {
    if (!question.is_over) end(question, question.is_sent ? kNoAnswer : "it cannot be reached");
  }
}

std::string WatchLink::remark_on(int node, const std::string& problem) const {
  const auto& places = places_[static_cast<size_t>(node)];
  std::vector<int> ranks;
  for (const Place& place : places)
    ranks.push_back(place.rank);
  return str(places.front().host, " (", rank_list(ranks),
             ") did not answer over TCP: ", problem.empty() ? "no address is known" : problem);
}

// Of a node whose machine takes questions, but none of its processes answers: whatever the others wait for, they wait
// for these. Nothing where one of them is not among `mute`.
std::vector<Standing> WatchLink::mute_standings(int node, const std::set<int>& mute,
                                                const std::vector<Standing>& known) const {
  double longest = 0.0;
  for (const Standing& standing : known) {
    if (standing.state == Standing::State::kWaiting) longest = std::max(longest, standing.still);
  }
  std::vector<Standing> out;
  for (const Place& place : places_[static_cast<size_t>(node)]) {
    if (mute.count(place.rank) == 0) return {};
    out.push_back(standing_at(place, Standing::State::kMute));
    out.back().still = longest;
  }
  return out;
}

// A process listens until it has come to its end.
std::vector<Standing> WatchLink::ended_standings(int node) const {
  std::vector<Standing> out;
  for (const Place& place : places_[static_cast<size_t>(node)]) {
    out.push_back(standing_at(place, Standing::State::kEnded));
    out.back().turns = {{kLaunchGroup, kEndTurn}};
  }
  return out;
}

JobStandings WatchLink::ask(std::vector<Standing> own) const {
  const bool is_at_end = std::any_of(own.begin(), own.end(), [](const Standing& standing) {
    return standing.group == kLaunchGroup && standing.turn >= kFinalizeTurn;
  });
  JobStandings job{std::move(own), ""};
  std::map<int, std::string> problems;
  std::set<int> mute;       // ranks
  std::set<int> listening;  // nodes of which somebody may be there
  for (int node = 0; node < num_nodes_; ++node) {
    if (node != node_) problems[node] = "";
  }
  const auto round = [&](size_t first, size_t last, Deadline deadline) {
    auto left = problems;
    while (!left.empty()) {
      std::vector<Question> questions;
      while (!left.empty() && questions.size() < kMostAtOnce) {
        const auto more = questions_to(left.begin()->first, first, last);
        questions.insert(questions.end(), more.begin(), more.end());
        left.erase(left.begin());
      }
      put(questions, "ask", deadline);
      for (const Question& question : questions) {
        const auto open = problems.find(question.place->node);
        if (open == problems.end()) continue;
        if (is_answered(question)) {
          const auto theirs = standings_of(question.answer);
          job.standings.insert(job.standings.end(), theirs.begin(), theirs.end());
          problems.erase(open);
        } else {
          if (question.problem == kNoAnswer) mute.insert(question.place->rank);
          if (!question.is_refused) listening.insert(question.place->node);
          open->second = str(question.address, " port ", question.place->port, ": ", question.problem);
        }
      }
    }
  };
  const Deadline end = Clock::now() + milliseconds(std::lround(1000 * patience_with_nodes()));
  round(0, 1, Clock::now() + kPatienceWithFirst);
  round(0, kMostProcessesAsked, end);
  std::vector<std::string> remarks;
  for (const auto& [node, problem] : problems) {
    const bool have_ended = is_at_end && listening.count(node) == 0 && !problem.empty();
    const std::vector<Standing> theirs = have_ended ? ended_standings(node) : mute_standings(node, mute, job.standings);
    if (theirs.empty()) remarks.push_back(remark_on(node, problem));
    job.standings.insert(job.standings.end(), theirs.begin(), theirs.end());
  }
  job.remark = join(remarks, "; ");
  return job;
}

bool WatchLink::claim() const {
  const Deadline deadline = Clock::now() + kPatienceWithClaim;
  for (int node = 0; node < node_ && Clock::now() < deadline; ++node) {
    std::vector<Question> questions = questions_to(node, 0, kMostProcessesAsked);
    put(questions, "claim", std::min(deadline, Clock::now() + kPatienceWithCaller));
    for (const Question& question : questions) {
      if (!is_answered(question)) continue;
      return question.answer == "granted\n";
    }
  }
  return true;
}

void WatchLink::silence_others() const {
  std::vector<Question> questions;
  for (int node = 0; node < num_nodes_; ++node) {
    if (node == node_ || questions.size() > kMostAtOnce) continue;
    const auto more = questions_to(node, 0, 2);
    questions.insert(questions.end(), more.begin(), more.end());
  }
  put(questions, "claim", Clock::now() + kPatienceWithSilence);
}

}  // namespace vit_hybrid::comm
