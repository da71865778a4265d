// Nearest word: what somebody meant who wrote a name that is not known.
#pragma once

#include <string>
#include <vector>

namespace vit_hybrid {

/// The word of `words` that is meant by `word`: one that begins with it, else the one that takes fewest insertions,
/// deletions and replacements of a character; empty where there are no words.
std::string nearest_word(const std::string& word, const std::vector<std::string>& words);

}  // namespace vit_hybrid
