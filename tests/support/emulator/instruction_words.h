// The instructions of src/kernels/device_instructions.h for the emulator: what the PTX ISA says of mma.m16n8k16,
// ldmatrix and the others, lane by lane.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/emulator/emulator.h"

namespace vit_hybrid::kernels {

inline int own_lane() {
  const testing::EmulatedThread& thread = testing::emulated_thread();
  const unsigned row = thread.thread.z * thread.block_size.y + thread.thread.y;
  return static_cast<int>((row * thread.block_size.x + thread.thread.x) % 32);
}

/// What lane `lane` gives; all lanes of the warp ask, each for one of its own choice.
template <class T>
T value_given_by(int lane, const T& value) {
  return testing::value_of_lane(0xFFFFFFFFU, value, lane ^ own_lane());
}

struct WordPair {
  uint16_t words[2];
};
inline WordPair split_word(uint32_t word) {
  WordPair pair;
  std::memcpy(&pair, &word, sizeof(pair));
  return pair;
}
inline uint32_t joined_word(uint16_t first, uint16_t second) {
  const WordPair pair{{first, second}};
  uint32_t word = 0;
  std::memcpy(&word, &pair, sizeof(word));
  return word;
}

template <class T>
float number_of(uint16_t word) {
  T value;
  std::memcpy(static_cast<void*>(&value), &word, sizeof(value));
  return static_cast<float>(value);
}

inline uint32_t shared_address(const void* data) {
  return static_cast<uint32_t>(static_cast<const char*>(data) - static_cast<const char*>(testing::shared_memory()));
}

/// Element [row][column] of tile `tile`, whose rows begin where lanes 8 tile to 8 tile + 7 say.
inline uint16_t element_of_tile(uint32_t row_address, int tile, int row, int column) {
  const uint32_t address = value_given_by(8 * tile + row, row_address);
  if (address % 16 != 0) throw std::runtime_error("a row of a tile is not aligned to 16 bytes");
  uint16_t element = 0;
  std::memcpy(&element, static_cast<const char*>(testing::shared_memory()) + address + 2 * column, sizeof(element));
  return element;
}

inline void load_tiles(uint32_t (&words)[4], uint32_t row_address) {
  const int group = own_lane() / 4, pair = own_lane() % 4;
  for (int tile = 0; tile < 4; ++tile) {
    const uint16_t first = element_of_tile(row_address, tile, group, 2 * pair);
    words[tile] = joined_word(first, element_of_tile(row_address, tile, group, 2 * pair + 1));
  }
}

inline void load_tiles_transposed(uint32_t (&words)[4], uint32_t row_address) {
  const int group = own_lane() / 4, pair = own_lane() % 4;
  for (int tile = 0; tile < 4; ++tile) {
    const uint16_t first = element_of_tile(row_address, tile, 2 * pair, group);
    words[tile] = joined_word(first, element_of_tile(row_address, tile, 2 * pair + 1, group));
  }
}

template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Fragment {
    uint32_t words[4];
  };
  const int group = own_lane() / 4, pair = own_lane() % 4;
  const Fragment own_a{{a[0], a[1], a[2], a[3]}}, own_b{{b0, b1, 0, 0}};
  for (int quarter = 0; quarter < 4; ++quarter) {  // k = 2 quarter, 2 quarter + 1, and these + 8
    const Fragment rows = value_given_by(4 * group + quarter, own_a);
    for (int side = 0; side < 2; ++side) {
      const Fragment column = value_given_by(4 * (2 * pair + side) + quarter, own_b);
      for (int half = 0; half < 2; ++half) {
        for (int part = 0; part < 2; ++part) {
          const WordPair left = split_word(rows.words[half + 2 * part]), right = split_word(column.words[part]);
          for (int i = 0; i < 2; ++i) {
            c[2 * half + side] += number_of<T>(left.words[i]) * number_of<T>(right.words[i]);
          }
        }
      }
    }
  }
}

template <class T>
uint32_t pair_of(float first, float second) {
  return joined_word(static_cast<T>(first).x, static_cast<T>(second).x);
}

inline float power_of_two(float x) {
  return std::exp2(x);
}
inline float reciprocal(float x) {
  return 1.0F / x;
}

// Copies arrive as late as they may, when the thread waits for them; until then their place holds bytes 0xFF.
struct SharedCopies {
  struct Copy {
    void* to;
    const void* from;
  };
  unsigned block = 0;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;

  static void arrive(const std::vector<Copy>& copies) {
    for (const Copy& copy : copies)
      std::memcpy(copy.to, copy.from, 16);
  }
  void keep_last(size_t count) {
    for (; groups.size() > count; groups.pop_front())
      arrive(groups.front());
  }
};

/// Of the calling thread.
inline SharedCopies& own_copies() {
  thread_local std::unordered_map<unsigned, SharedCopies> of_threads;
  const testing::EmulatedThread& thread = testing::emulated_thread();
  SharedCopies& own =
      of_threads[(thread.thread.z * thread.block_size.y + thread.thread.y) * thread.block_size.x + thread.thread.x];
  const unsigned block =
      1 + (thread.block.z * thread.grid_size.y + thread.block.y) * thread.grid_size.x + thread.block.x;
  if (own.block != block) own = {block, {}, {}};
  return own;
}

template <class Vector>
void copy_to_shared(Vector* to, const void* from) {
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0) throw std::runtime_error("a copy of 16 bytes from an odd address");
  std::memset(static_cast<void*>(to), 0xFF, sizeof(*to));
  own_copies().open.push_back({to, from});
}
inline void end_group_of_copies() {
  own_copies().groups.push_back(std::exchange(own_copies().open, {}));
}
template <int kLast>
void wait_for_copies_but() {
  own_copies().keep_last(kLast);
}
inline void wait_for_copies() {
  end_group_of_copies();
  own_copies().keep_last(0);
}

}  // namespace vit_hybrid::kernels
