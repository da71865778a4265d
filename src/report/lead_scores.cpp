// The two orders of mean and root, spectra, and the tables by lead.
#include "src/report/lead_scores.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

constexpr size_t kNameWidth = 12;
constexpr size_t kCellWidth = 13;
constexpr int kDigits = 5;

}  // namespace

at::Tensor zonal_power(const at::Tensor& field, const at::Tensor& weights, const data::Normalization& units) {
  const int64_t channels = field.size(0), height = field.size(1), width = field.size(2), waves = width / 2 + 1;
  const auto* const row_weights = weights.const_data_ptr<double>();
  const at::Tensor out = at::zeros({channels, waves}, at::kDouble);
  auto* const power = out.mutable_data_ptr<double>();
  at::parallel_for(0, channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const auto number = static_cast<size_t>(c);
      const at::Tensor values = field[c].to(at::kDouble) * units.std[number] + units.mean[number];
      const at::Tensor numbers = at::view_as_real(at::fft_rfft(values, std::nullopt, -1, "forward")).contiguous();
      const auto* of_row = numbers.const_data_ptr<double>();
      for (int64_t i = 0; i < height; ++i, of_row += 2 * waves) {
        for (int64_t k = 0; k < waves; ++k) {
          const double re = of_row[2 * k], im = of_row[2 * k + 1];
          power[c * waves + k] += row_weights[i] / static_cast<double>(height) * (re * re + im * im);
        }
      }
    }
  });
  // Each but the mean and the shortest wave of an even number of points stands for its conjugate, too.
  out.narrow(1, 1, (width - 1) / 2).mul_(2.0);
  return out;
}

LeadSums::LeadSums(ScoreRules rules, std::vector<ScoredLead> leads, const data::Grid& grid,
                   const data::Normalization& normalization, int64_t height, int64_t width)
    : rules_(rules),
      leads_(std::move(leads)),
      units_(rules == ScoreRules::kReference ? data::Normalization::identity(std::ssize(normalization.mean))
                                             : normalization),
      weights_(at::tensor(rules == ScoreRules::kReference ? data::latitude_weights(grid, height)
                                                          : data::cell_area_weights(grid, height),
                          at::kDouble)),
      channels_(std::ssize(normalization.mean)),
      columns_(rules == ScoreRules::kReference ? int64_t{kNumFieldScores} : int64_t{kNumFieldMoments}),
      wavenumbers_(width / 2 + 1),
      sums_(at::zeros({std::ssize(leads_), 1 + channels_ * (columns_ + 2 * wavenumbers_)}, at::kDouble)) {}

// `columns` numbers of each channel behind `begin` ones.
at::Tensor LeadSums::part(const at::Tensor& sums, size_t lead, int64_t begin, int64_t columns) const {
  return sums[static_cast<int64_t>(lead)]
      .narrow(0, 1 + channels_ * begin, channels_ * columns)
      .view({channels_, columns});
}

void LeadSums::add(size_t lead, const at::Tensor& forecast, const at::Tensor& truth, const at::Tensor& truth_power,
                   const at::Tensor& persistence, const at::Tensor& climatology) {
  const at::Tensor moments = field_moments(forecast, truth, persistence, weights_, climatology);
  sums_[static_cast<int64_t>(lead)][0] += forecast.size(0);
  part(sums_, lead, 0, columns_).add_((rules_ == ScoreRules::kReference ? field_scores(moments) : moments).sum(0));
  for (int64_t i = 0; i < forecast.size(0); ++i) {
    part(sums_, lead, columns_, wavenumbers_).add_(power(forecast[i]));
    part(sums_, lead, columns_ + wavenumbers_, wavenumbers_).add_(truth_power[i]);
  }
}

std::vector<LeadFigures> LeadSums::finish(const at::Tensor& reduced_sums) const {
  const at::Tensor scale = at::tensor(units_.std, at::kDouble).unsqueeze(1);
  std::vector<LeadFigures> figures;
  for (size_t lead = 0; lead < leads_.size(); ++lead) {
    const auto samples = reduced_sums[static_cast<int64_t>(lead)][0].item<double>();
    const auto mean = [&](int64_t begin, int64_t columns) {
      return part(reduced_sums, lead, begin, columns) / samples;
    };
    const at::Tensor means = mean(0, columns_);
    const at::Tensor scores = (rules_ == ScoreRules::kReference ? means : field_scores(means)).clone();
    for (const FieldScore score : {kBias, kRmse, kActivity, kClimatologyRmse, kPersistenceRmse}) {
      scores.narrow(1, score, 1).mul_(scale);
    }
    figures.push_back({leads_[lead], std::llround(samples), scores, mean(columns_, wavenumbers_),
                       mean(columns_ + wavenumbers_, wavenumbers_)});
  }
  return figures;
}

std::string lead_text(const ScoredLead& lead) {
  return lead.hours > 0.0 ? str(number_text(lead.hours, 6), " h") : counted(lead.steps, "step");
}

std::vector<std::string> table_lines(const std::vector<LeadFigures>& figures,
                                     const std::vector<std::string>& channels) {
  struct Column {
    const char* name;
    FieldScore score;
  };
  constexpr std::array kColumns = {
      Column{"RMSE", kRmse},        Column{"persistence", kPersistenceRmse}, Column{"climatology", kClimatologyRmse},
      Column{"ACC", kAcc},          Column{"persistence", kPersistenceAcc},  Column{"bias", kBias},
      Column{"activity", kActivity}};
  const auto name_cell = [](const std::string& name) {
    return name + std::string(name.size() < kNameWidth ? kNameWidth - name.size() : 1, ' ');
  };
  std::vector<std::string> lines;
  for (const LeadFigures& at_lead : figures) {
    lines.push_back(str("lead ", lead_text(at_lead.lead), ", ", counted(at_lead.samples, "start")));
    std::string& head = lines.emplace_back(name_cell("channel"));
    for (const Column& column : kColumns) {
      head += right_text(column.name, kCellWidth);
    }
    for (size_t c = 0; c < channels.size(); ++c) {
      std::string& line = lines.emplace_back(name_cell(channels[c]));
      for (const Column& column : kColumns) {
        const auto value = at_lead.scores[static_cast<int64_t>(c)][column.score].item<double>();
        line += right_text(number_text(value, kDigits), kCellWidth);
      }
    }
  }
  return lines;
}

Json to_json(const std::vector<LeadFigures>& figures, const std::vector<std::string>& channels) {
  Json list = Json::array();
  for (const LeadFigures& at_lead : figures) {
    Json& json = list.emplace_back(Json{{"steps", at_lead.lead.steps}, {"samples", at_lead.samples}});
    if (at_lead.lead.hours > 0.0) {
      json["hours"] = at_lead.lead.hours;
    }
    for (size_t c = 0; c < channels.size(); ++c) {
      const auto channel = static_cast<int64_t>(c);
      for (int64_t score = 0; score < kNumFieldScores; ++score) {
        json[kFieldScoreNames[static_cast<size_t>(score)]][channels[c]] = at_lead.scores[channel][score].item<double>();
      }
      for (const auto& [name, spectra] :
           {std::pair("spectrum", at_lead.spectrum), std::pair("truth_spectrum", at_lead.truth_spectrum)}) {
        const auto* const values = spectra.const_data_ptr<double>() + channel * spectra.size(1);
        json[name][channels[c]] = std::vector<double>(values, values + spectra.size(1));
      }
    }
  }
  return list;
}

}  // namespace vit_hybrid::train
