#include <prenorm/config.h>

#include <iostream>

int main() {
  std::cout << "linked: " << prenorm::ModelConfig{.vocab_size = 3}.to_json().size() << " bytes\n";
}
