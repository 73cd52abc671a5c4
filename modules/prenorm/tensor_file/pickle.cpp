#include "prenorm/tensor_file/pickle.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "prenorm/error.h"

namespace prenorm {

using Kind = PickleValue::Kind;

// Far above what a checkpoint of 100 MB of pickle has, and what keeps memory in proportion to it.
constexpr std::size_t kMaxValues = 5'000'000;
constexpr std::size_t kMaxOperations = 25'000'000;
constexpr std::size_t kMaxGlobal = 10'000;  // bytes of a name
constexpr std::size_t kMaxGlobals = 100'000'000;

/// The stack machine of Python's pickletools, for the operations that PyTorch's files are made of.
class PickleMachine {
 public:
  PickleMachine(Pickle& pickle, const std::function<bool(std::string_view)>& known)
      : pickle_(pickle), bytes_(pickle.bytes_), known_(known), other_(pickle.values_.emplace_back()) {}

  const PickleValue* run() {
    require(bytes_.size() > 2 && bytes_[0] == '\x80', "the pickle does not begin with a protocol");
    for (std::size_t operations = 0; !done_; ++operations) {
      require(operations < kMaxOperations, "the pickle has more than ", kMaxOperations, " operations");
      step(take(1)[0]);
    }
    return pop();
  }

 private:
  void step(char operation) {
    // clang-format off
    switch (operation) {
      case '\x80': {  // PROTO
        const int protocol = number<std::uint8_t>();
        return require(protocol >= 2 && protocol <= 5, "pickle protocol ", protocol, " is not one of 2 to 5");
      }
      case '\x95': take(8); return;               // FRAME
      case '.': done_ = true; return;             // STOP
      case '(': marks_.push_back(stack_.size()); return;
      case '0': pop(); return;                    // POP
      case '1': pop_mark(); return;               // POP_MARK
      case '2': stack_.push_back(top()); return;  // DUP
      case 'N': push_other(); return;        // NONE
      case '\x88': return push_integer(1);        // NEWTRUE
      case '\x89': return push_integer(0);        // NEWFALSE
      case 'J': return push_integer(number<std::int32_t>());
      case 'K': return push_integer(number<std::uint8_t>());
      case 'M': return push_integer(number<std::uint16_t>());
      case '\x8a': return push_long(take(number<std::uint8_t>()));   // LONG1
      case '\x8b': return push_long(take(number<std::uint32_t>()));  // LONG4
      case 'G': take(8); push_other(); return;                  // BINFLOAT
      case 'X': return push_text(take(number<std::uint32_t>()));     // BINUNICODE
      case '\x8c': return push_text(take(number<std::uint8_t>()));   // SHORT_BINUNICODE
      case '\x8d': return push_text(take(number<std::uint64_t>()));  // BINUNICODE8
      case 'U': return push_text(take(number<std::uint8_t>()));      // SHORT_BINSTRING
      case 'T': return push_text(take(number<std::uint32_t>()));     // BINSTRING
      case 'C': take(number<std::uint8_t>()); push_other(); return;     // SHORT_BINBYTES
      case 'B': take(number<std::uint32_t>()); push_other(); return;    // BINBYTES
      case '\x8e': take(number<std::uint64_t>()); push_other(); return;  // BINBYTES8
      case '\x96': take(number<std::uint64_t>()); push_other(); return;  // BYTEARRAY8
      case '}': push(Kind::dict); return;
      case ']': case ')': case '\x8f': push(Kind::list); return;                   // EMPTY_LIST, _TUPLE, _SET
      case 't': case 'l': case '\x91': return push_items(Kind::list, pop_mark());  // TUPLE, LIST, FROZENSET
      case 'd': {  // DICT
        const auto items = pop_mark();
        push(Kind::dict);
        return extend(Kind::dict, items);
      }
      case '\x85': return push_items(Kind::list, pop(1));  // TUPLE1 to TUPLE3
      case '\x86': return push_items(Kind::list, pop(2));
      case '\x87': return push_items(Kind::list, pop(3));
      case 'a': return extend(Kind::list, pop(1));                            // APPEND
      case 'e': case '\x90': return extend(Kind::list, pop_mark());           // APPENDS, ADDITEMS
      case 's': return extend(Kind::dict, pop(2));                            // SETITEM
      case 'u': return extend(Kind::dict, pop_mark());                        // SETITEMS
      case 'q': return store(number<std::uint8_t>());                // BINPUT
      case 'r': return store(number<std::uint32_t>());               // LONG_BINPUT
      case '\x94': return store(static_cast<std::uint32_t>(memo_.size()));  // MEMOIZE
      case 'h': return recall(number<std::uint8_t>());                        // BINGET
      case 'j': return recall(number<std::uint32_t>());                       // LONG_BINGET
      case 'c': {                                                             // GLOBAL
        const std::string_view module = line();
        return push_global(module, line());
      }
      case '\x93': {  // STACK_GLOBAL
        const auto names = pop(2);
        require(names[0]->is(Kind::text) && names[1]->is(Kind::text), "the pickle names a global by no text");
        return push_global(names[0]->text, names[1]->text);
      }
      case 'Q': return push_items(Kind::persistent, pop(1));  // BINPERSID
      case 'R': return reduce();
      case '\x81': return push_items(Kind::object, pop(2));  // NEWOBJ
      case '\x92': {  // NEWOBJ_EX
        auto items = pop(3);
        items.pop_back();
        return push_items(Kind::object, std::move(items));
      }
      case 'b': return build();
      default: {
        constexpr char kDigits[] = "0123456789abcdef";
        const auto code = static_cast<unsigned char>(operation);
        fail("the pickle holds the operation 0x", kDigits[code >> 4], kDigits[code & 15], ", which is not read");
      }
    }
    // clang-format on
  }

  std::string_view take(std::uint64_t count) {
    require(count <= bytes_.size() - position_, "the pickle is cut off at byte ", bytes_.size());
    position_ += count;
    return bytes_.substr(position_ - count, count);
  }

  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view line() {
    const std::size_t end = bytes_.find('\n', position_);
    require(end != std::string_view::npos, "the pickle is cut off at byte ", bytes_.size());
    const std::string_view text = take(end - position_);
    ++position_;
    return text;
  }

  PickleValue& push(Kind kind) {
    require(pickle_.values_.size() < kMaxValues, "the pickle holds more than ", kMaxValues, " values");
    PickleValue& value = pickle_.values_.emplace_back();
    value.kind = kind;
    stack_.push_back(&value);
    return value;
  }

  /// All of them are one: nothing is known of them.
  void push_other() { stack_.push_back(&other_); }

  void push_integer(std::int64_t integer) { push(Kind::integer).integer = integer; }
  void push_text(std::string_view text) { push(Kind::text).text = text; }
  void push_items(Kind kind, std::vector<const PickleValue*> items) { push(kind).items = std::move(items); }

  void push_long(std::string_view digits) {
    if (digits.size() > 8) {
      push_other();
      return;
    }
    std::uint64_t value = !digits.empty() && digits.back() < 0 ? ~std::uint64_t{0} : 0;
    std::memcpy(&value, digits.data(), digits.size());
    push_integer(static_cast<std::int64_t>(value));
  }

  void push_global(std::string_view module, std::string_view name) {
    require(module.size() + name.size() < kMaxGlobal, "the pickle holds a global of more than ", kMaxGlobal, " bytes");
    const auto [full, added] = pickle_.names_.insert(std::string(module) + "." + std::string(name));
    if (added) globals_ += full->size();
    require(globals_ <= kMaxGlobals, "the pickle holds globals of more than ", kMaxGlobals, " bytes");
    push(known_(*full) ? Kind::global : Kind::foreign).text = *full;
  }

  PickleValue* top() const {
    require(stack_.size() > (marks_.empty() ? 0 : marks_.back()), "the pickle takes a value that is not there");
    return stack_.back();
  }

  PickleValue* pop() {
    PickleValue* value = top();
    stack_.pop_back();
    return value;
  }

  std::vector<const PickleValue*> pop(std::size_t count) {
    std::vector<const PickleValue*> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  std::vector<const PickleValue*> pop_mark() {
    require(!marks_.empty(), "the pickle takes a mark that is not there");
    std::vector<const PickleValue*> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void extend(Kind kind, const std::vector<const PickleValue*>& items) {
    PickleValue& container = *top();
    // A dict or list of a class of its own: opaque.
    if (container.is(Kind::object) || container.is(Kind::foreign) || container.is(Kind::call)) return;
    require(container.is(kind), "the pickle adds items to what is no ", kind == Kind::dict ? "dict" : "list");
    require(kind == Kind::list || items.size() % 2 == 0, "the pickle sets a key without a value");
    container.items.insert(container.items.end(), items.begin(), items.end());
  }

  void store(std::uint32_t key) {
    memo_[key] = top();
    require(memo_.size() <= kMaxValues, "the pickle stores more than ", kMaxValues, " values");
  }

  void recall(std::uint32_t key) {
    const auto entry = memo_.find(key);
    require(entry != memo_.end(), "the pickle recalls a value that it did not store");
    stack_.push_back(entry->second);
  }

  void reduce() {
    const PickleValue* arguments = pop();
    PickleValue* function = pop();
    require(arguments->is(Kind::list), "the pickle calls with arguments that are no tuple");
    const std::string_view name = function->is(Kind::global) ? function->text : std::string_view();
    if (function->is(Kind::foreign)) {
      stack_.push_back(function);
    } else if (name == "collections.OrderedDict" || name == "collections.defaultdict") {
      push(Kind::dict);
    } else {
      push_items(Kind::call, {function, arguments});
    }
  }

  void build() {
    const PickleValue* state = pop();
    PickleValue& value = *top();
    if (value.is(Kind::object)) value.items.push_back(state);
  }

  Pickle& pickle_;
  std::string_view bytes_;
  const std::function<bool(std::string_view)>& known_;
  std::size_t position_ = 0;
  bool done_ = false;
  std::vector<PickleValue*> stack_ = {};
  std::vector<std::size_t> marks_ = {};
  std::unordered_map<std::uint32_t, PickleValue*> memo_ = {};
  PickleValue& other_;
  std::size_t globals_ = 0;
};

Pickle::Pickle(std::string bytes, const std::function<bool(std::string_view)>& known) : bytes_(std::move(bytes)) {
  root_ = PickleMachine(*this, known).run();
}

}  // namespace prenorm
