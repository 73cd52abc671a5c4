#include <fstream>
#include <sstream>

#include "catch.h"
#include "prenorm/error.h"
#include "prenorm/params/blocks.h"
#include "prenorm/params/config_count.h"
#include "prenorm/params/count_path.h"
#include "prenorm/params/dimensions.h"
#include "prenorm/params/families.h"
#include "prenorm/params/report.h"
#include "throws.h"

namespace params_test {

using prenorm::Error;
using prenorm::ModelConfig;
using namespace prenorm::params;

namespace {

std::vector<std::vector<std::string>> rows_of(const std::string& file) {
  std::ifstream stream(PRENORM_TEST_DATA "/" + file);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream cells(line);
    rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, '\t');) rows.back().push_back(cell);
    rows.back().resize(6);
  }
  return rows;
}

std::string error(const std::string& json) {
  return message_of<Error>([&] { count_config(json); });
}

std::int64_t total(const std::string& json) {
  return count_config(json).tree.total().value();
}

const std::string kLlama = R"({"model_type":"llama","vocab_size":100,"hidden_size":64,"num_hidden_layers":2,
  "intermediate_size":96,"num_attention_heads":8,"num_key_value_heads":2,"architectures":["LlamaForCausalLM"]})";

std::string with(const std::string& from, const std::string& to) {
  std::string json = kLlama;
  return json.replace(json.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("every row of the table of published models is counted exactly") {
  const auto rows = rows_of("parameters.tsv");
  REQUIRE(rows.size() == 48);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    INFO(rows[i][0]);
    const ConfigCount count = count_config(rows[i][2]);
    CHECK(count.tree.total() == std::stoll(rows[i][3]));
    CHECK(count.exact);
  }
}

TEST_CASE("a mixture's active parameters and the share of the embeddings are told apart") {
  for (const auto& row : rows_of("parameters.tsv")) {
    const auto is = [&](const char* name) { return row[0] == name; };
    if (!is("mixtral-8x7b") && !is("qwen3-30b-a3b") && !is("gpt2")) continue;
    const Component tree = count_config(row[2]).tree;
    if (is("mixtral-8x7b")) CHECK(tree.active() == 12879925248);
    if (is("qwen3-30b-a3b")) CHECK(tree.active() == 3353032704);
    if (is("gpt2")) CHECK(tree.total() - tree.embeddings() == 85056000);
  }
}

TEST_CASE("counts do not overflow silently") {
  const Count large = std::int64_t{1} << 62;
  CHECK_THROWS_AS(large + large, Error);
  CHECK_THROWS_AS(large * 2, Error);
  CHECK_THROWS_AS(Count(0) - large - large - large, Error);
  CHECK(error(with("\"hidden_size\":64", "\"hidden_size\":4611686018427387904")).find("64 bits") != std::string::npos);
  CHECK(error(with("\"num_hidden_layers\":2", "\"num_hidden_layers\":9000000000000000")).find("64 bits") !=
        std::string::npos);
}

TEST_CASE("blocks have the counts of their formulas") {
  CHECK(linear("", 3, 5).total() == 20);
  CHECK(linear("", 3, 5, false).total() == 15);
  CHECK(norm("", 7).total() == 14);
  CHECK(attention("", {.d = 8, .heads = 4, .kv_heads = 2, .head_size = 3}).total() == 8 * 12 + 12 + 2 * (48 + 6) + 104);
  CHECK(attention("", {.d = 8, .heads = 4, .kv_heads = 4, .head_size = 2, .bias = false}).total() == 4 * 64 + 8);
  CHECK(feed_forward("", 4, 10).total() == 94);
  CHECK(gated_feed_forward("", 4, 10).total() == 120);
  const Component experts = mixture("", 4, 10, 6, 2);
  CHECK(experts.total() == 24 + 6 * 120);
  CHECK(experts.active() == 24 + 2 * 120);
  const Component tied = output("", 4, 100, true, true);
  CHECK(tied.total() == 100);
  CHECK(tied.tied_elements() == 400);
}

TEST_CASE("a config is read strictly and errors name the key") {
  CHECK(error(with("\"vocab_size\":100,", "")) == "vocab_size is missing");
  CHECK(error(with("\"vocab_size\":100", "\"vocab_size\":null")) == "vocab_size is missing");
  CHECK(error(with("\"vocab_size\":100", "\"vocab_size\":0")) == "vocab_size is 0, not a positive number");
  CHECK(error(with("\"vocab_size\":100", "\"vocab_size\":-3")) == "vocab_size is -3, not a positive number");
  CHECK(error(with("\"vocab_size\":100", "\"vocab_size\":1.5")) == "vocab_size is 1.5, not a 64-bit integer");
  CHECK(error(with("\"num_attention_heads\":8", "\"num_attention_heads\":10")).find("10") != std::string::npos);
  CHECK(error(with("\"num_key_value_heads\":2", "\"num_key_value_heads\":3")) ==
        "num_attention_heads 8 is not a multiple of num_key_value_heads 3");
  CHECK(error(with("[\"LlamaForCausalLM\"]", "\"LlamaForCausalLM\"")) == "architectures is not a list of names");
  CHECK(error(with("\"llama\"", "7")) == "model_type is 7, not a text");
  CHECK(error("{\n  \"a\": }") == "not valid JSON at line 2, column 8");
  CHECK(error("{\n  // from the paper\n  \"a\": 1}") == "not valid JSON at line 2, column 3");
  CHECK(error("{\"a\":\n" + std::string(200, '[')) == "JSON nested more than 100 deep at line 2, column 100");
  CHECK(error(with("\"hidden_size\":64", "\"hidden_size\":64,\"hidden_size\":128")) ==
        "the key \"hidden_size\" stands twice");
  CHECK(error(R"({"a":{"b":1},"c":[{"b":1},{"b":1,"b":2}]})") == "the key \"b\" stands twice");
  CHECK(error("[]") == "not a JSON object");
  CHECK(error("{}") == "no model dimensions found: neither model_type nor a width and layers");
  CHECK(error(R"({"model_type":"gpt99","n_embd":8,"n_layer":2})")
            .find("unknown model_type \"gpt99\". 12 d^2 L is 1536. Known: prenorm, albert, bert") == 0);
}

TEST_CASE("a key that transformers knows by two names counts by the one it takes") {
  const std::string base = R"({"model_type":"gpt2","vocab_size":50,"n_positions":8,"n_layer":1,"n_head":2,)";
  const ConfigCount both = count_config(base + R"("n_embd":8,"hidden_size":16})");
  CHECK(both.tree.total() == total(base + R"("n_embd":16})"));
  REQUIRE(both.notes.size() >= 1);
  CHECK(both.notes[0].find("n_embd 8 and hidden_size 16 disagree") == 0);
}

TEST_CASE("another model type or head can be asked for") {
  const ConfigCount bare = count_config(kLlama, {.architecture = "LlamaModel"});
  CHECK(bare.tree.total() == total(kLlama) - 6400);
  CHECK(count_config(kLlama, {.model_type = "qwen2"}).tree.total() == total(kLlama) + 2 * (64 + 16 + 16));
  CHECK(known_heads(kLlama).front() == "Model");
}

TEST_CASE("a config whose net may be another is counted by the rules that are known, and never exact") {
  const auto doubts = [](const std::string& json, std::int64_t expected) {
    const ConfigCount count = count_config(json);
    CHECK(count.tree.total() == expected);
    std::string notes;
    for (const std::string& note : count.notes) notes += note + "\n";
    return count.exact ? "exact" : notes;
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string jina = R"({"model_type":"bert","architectures":["JinaBertForMaskedLM"],
    "auto_map":{"AutoModel":"x/y--modeling_bert.JinaBertModel"},"hidden_size":768,"num_hidden_layers":12,
    "num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":8192,"type_vocab_size":2,
    "vocab_size":30528,"position_embedding_type":"alibi","feed_forward_type":"geglu","emb_pooler":"mean"})";
  const std::string found = doubts(jina, 137400384);
  for (const char* part : {"auto_map", "\"JinaBertForMaskedLM\" is no class of bert: counted as BertForMaskedLM",
                           "position_embedding_type \"alibi\"", "feed_forward_type \"geglu\"", "emb_pooler \"mean\""}) {
    INFO(part);
    CHECK(contains(found, part));
  }
  const std::string santa = R"({"model_type":"gpt2","architectures":["GPT2LMHeadCustomModel"],
    "attention_head_type":"multiquery","n_embd":2048,"n_head":16,"n_inner":8192,"n_layer":24,"n_positions":2048,
    "vocab_size":49280})";
  CHECK(contains(doubts(santa, 1124886528), "GPT2LMHeadCustomModel"));
  const std::string bert = R"({"model_type":"bert","architectures":["BertModel"],"hidden_size":768,
    "num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":512,
    "type_vocab_size":2,"vocab_size":30522,)";
  CHECK(contains(doubts(bert + R"("position_embedding_type":"relative_key_query"})", 109482240),
                 "position_embedding_type \"relative_key_query\" is not followed"));

  const std::int64_t llama = total(kLlama);
  const auto more = [](const std::string& field) { return with("\"model_type\"", field + ",\"model_type\""); };
  for (const char* field :
       {"\"num_experts\":4", "\"kv_lora_rank\":16", "\"ffn_type\":\"moe\"", "\"qkv_bias\":true",
        "\"pad_vocab_size_multiple\":8", "\"hidden_act\":\"geglu\"", "\"auto_map\":{\"AutoModel\":\"m.M\"}"}) {
    const std::string name(field + 1, std::string_view(field).find('"', 1) - 1);
    CHECK(contains(doubts(more(field), llama), name.c_str()));
  }
  CHECK(contains(doubts(with("LlamaForCausalLM", "MegaLlamaForCausalLM"), llama), "MegaLlamaForCausalLM"));
  // Numbers, names, and what switches nothing on.
  for (const char* field : {"\"rope_scaling\":{\"factor\":8}", "\"max_position_embeddings\":9", "\"emb_size\":64",
                            "\"attn_dropout\":0.1", "\"use_moe\":false", "\"lora_rank\":0", "\"hidden_act\":\"silu\"",
                            "\"sentence_transformers\":{\"version\":\"5\"}", "\"pruned_heads\":{}",
                            "\"unsloth_fixed\":true", "\"attention_type\":\"full\""}) {
    INFO(field);
    CHECK(doubts(more(field), llama) == "exact");
  }
}

TEST_CASE("our own model has the tensors of its state dict") {
  const ModelConfig config{.vocab_size = 11,
                           .d_model = 6,
                           .num_heads = 2,
                           .num_layers = 3,
                           .d_ff = 10,
                           .attention_bias = true,
                           .position = prenorm::Position::learned,
                           .max_positions = 5,
                           .num_segments = 2,
                           .embedding_norm = true,
                           .head = prenorm::Head::token,
                           .num_classes = 4};
  const std::int64_t embeddings = 11 * 6 + 5 * 6 + 2 * 6 + 2 * 6;            // token, position, segment, norm
  const std::int64_t attend = 18 * 6 + 18 + 6 * 6 + 6;                       // mha.in_proj, mha.out_proj
  const std::int64_t layer = attend + 10 * 6 + 10 + 6 * 10 + 6 + 2 * 2 * 6;  // ff.net.0, ff.net.3, sub1, sub2
  CHECK(count_model(config).total() == embeddings + 3 * layer + 12 + 4 * 6 + 4);
  CHECK(total(config.to_json()) == count_model(config).total());
  ModelConfig post = config;
  post.norm_placement = prenorm::NormPlacement::post;
  CHECK(count_model(post).total() == count_model(config).total() - 12);
  ModelConfig apart = config, tied = config;
  apart.num_classes = tied.num_classes = 11;
  tied.tie_head = true;
  CHECK(count_model(tied).total() == count_model(apart).total() - 11 * 6);
  CHECK(total(tied.to_json()) == count_model(tied).total());
}

TEST_CASE("dimensions give the lesson's numbers, and its rounded ones beside them") {
  ModelConfig config = bare_layers();
  config.num_layers = 1;
  CHECK(count_model(config).total() == 3150336);
  CHECK(lesson_layer(config) == 3147776);
  config.attention_bias = true;
  CHECK(count_model(config).total() == 3152384);
  config.d_model = 128;
  CHECK(count_model(config).total() == 198272);
  config.norm_bias = false;
  CHECK(count_model(config).total() == 198272 - 2 * 128);
}

TEST_CASE("a total is followed back to L or d") {
  ModelConfig config = bare_layers();
  for (const std::int64_t layers : {1, 7, 96}) {
    config.d_model = 768;
    config.num_layers = layers;
    const Count exact = count_model(config).total();
    const auto found = solve_layers(config, exact + 1000);
    REQUIRE(found.size() == 2);
    CHECK(found[0].config.num_layers == layers);
    CHECK(found[0].error_percent < 0);
    CHECK(found[1].config.num_layers == layers + 1);
    CHECK(solve_width(config, exact)[0].config.d_model == 768);
  }
  CHECK(solve_layers(config, 1).front().config.num_layers == 1);
  CHECK_THROWS_AS(solve_layers(ModelConfig{.vocab_size = 0, .d_model = -1}, 10), Error);
}

TEST_CASE("totals and labels are read as people write them") {
  CHECK(parse_total("7B") == 7000000000);
  CHECK(parse_total("1.5e3") == 1500);
  CHECK(parse_total("6,738,415,616") == 6738415616);
  CHECK(parse_total("350m") == 350000000);
  for (const char* wrong : {"", "B", "-3", "0", "7Q", "1e30", "nan", "7B7"}) CHECK_THROWS_AS(parse_total(wrong), Error);

  const auto label = [](const std::string& input) { return size_label({.input = input, .source = "config"}); };
  CHECK(label("a/Llama-2-7b-hf/config.json")->claimed == 7000000000);
  CHECK(label("Mixtral-8x7B")->claimed == 56000000000);
  CHECK(label("Qwen2.5-0.5B")->text == "0.5B");
  CHECK_FALSE(label("gpt2/config.json").has_value());
  CHECK(label("./Llama-2-7b/./")->text == "7b");
  CHECK(label("x/../Llama-2-7b/config.json")->text == "7b");
  CHECK_FALSE(label("Llama-2-7b/link/../config.json").has_value());  // which may be anywhere
  CHECK(label("hub/models--x--Y-13b/snapshots/0a1b2c/config.json")->text == "13b");
  CHECK(label("opt_350m.safetensors")->claimed == 350000000);
  for (const char* none : {"bert-4bit", "0B", "x7B", "7x", "1.b", "12345B", "b", "v7", "7Bit", ""}) {
    INFO(none);
    CHECK_FALSE(label(none).has_value());
  }
  CHECK(grouped(-1234567) == "-1,234,567");
  CHECK(grouped(999) == "999");
  CHECK(rounded(124439808) == "124.4 M");
  CHECK(rounded(999999999) == "1.00 B");
}

TEST_CASE("every family is in the list once, in alphabetical order") {
  const auto& all = families();
  CHECK(all.size() == 30);
  for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i - 1].model_type < all[i].model_type);
}

}  // namespace params_test
