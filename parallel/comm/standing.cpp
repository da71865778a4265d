// Standing: the text between nodes.
#include "parallel/comm/standing.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

constexpr char kBetweenFields = '\t';

// A field may hold anything but the two separators.
std::string plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return text;
}

class Fields {
 public:
  explicit Fields(const std::string& line) : line_(line) {}

  std::string text() {
    std::string field;
    is_whole_ = is_whole_ && static_cast<bool>(std::getline(line_, field, kBetweenFields));
    return field;
  }
  template <class T>
  T number() {
    std::istringstream field(text());
    T value{};
    is_whole_ = is_whole_ && static_cast<bool>(field >> value);
    return value;
  }
  bool is_whole() const { return is_whole_; }

 private:
  std::istringstream line_;
  bool is_whole_ = true;
};

std::string line_of(const Standing& s) {
  std::ostringstream out;
  out.precision(17);
  const auto put = [&](const auto& value) { out << value << kBetweenFields; };
  put(s.rank), put(s.pid), put(plain(s.host)), put(static_cast<int>(s.state)), put(s.still), put(s.silent);
  put(s.is_halted), put(s.is_blind), put(s.is_idle), put(plain(s.system_call)), put(s.is_restless),
      put(plain(s.condition)), put(s.step), put(plain(s.position));
  put(plain(s.operation)), put(s.group), put(s.turn), put(s.group_size);
  put(s.awaits.size());
  for (const int rank : s.awaits)
    put(rank);
  put(s.turns.size());
  for (const GroupTurn& turn : s.turns)
    put(turn.group), put(turn.turn), put(turn.axis), put(turn.made), put(turn.made_before);
  return out.str();
}

constexpr size_t kMostInList = 4096;

Standing standing_of(Fields& fields) {
  Standing s;
  s.rank = fields.number<int>();
  s.pid = fields.number<int>();
  s.host = fields.text();
  s.state =
      static_cast<Standing::State>(std::clamp(fields.number<int>(), 0, static_cast<int>(Standing::State::kEnded)));
  s.still = fields.number<double>();
  s.silent = fields.number<double>();
  s.is_halted = fields.number<bool>();
  s.is_blind = fields.number<bool>();
  s.is_idle = fields.number<bool>();
  s.system_call = fields.text();
  s.is_restless = fields.number<bool>();
  s.condition = fields.text();
  s.step = fields.number<int64_t>();
  s.position = fields.text();
  s.operation = fields.text();
  s.group = fields.number<uint64_t>();
  s.turn = fields.number<uint64_t>();
  s.group_size = fields.number<int>();
  for (size_t left = std::min(fields.number<size_t>(), kMostInList); left > 0 && fields.is_whole(); --left)
    s.awaits.push_back(fields.number<int>());
  for (size_t left = std::min(fields.number<size_t>(), kMostInList); left > 0 && fields.is_whole(); --left) {
    GroupTurn turn;
    turn.group = fields.number<uint64_t>();
    turn.turn = fields.number<uint64_t>();
    turn.axis = fields.number<uint64_t>();
    turn.made = fields.number<uint64_t>();
    turn.made_before = fields.number<uint64_t>();
    s.turns.push_back(turn);
  }
  return s;
}

}  // namespace

std::string to_text(const std::vector<Standing>& standings) {
  std::string out;
  for (const Standing& standing : standings)
    out += line_of(standing) + "\n";
  return out;
}

std::vector<Standing> standings_of(const std::string& text) {
  std::vector<Standing> standings;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Fields fields(line);
    Standing standing = standing_of(fields);
    if (!fields.is_whole()) return {};
    standings.push_back(std::move(standing));
  }
  return standings;
}

}  // namespace vit_hybrid::comm
