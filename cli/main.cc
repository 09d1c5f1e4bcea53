// heed: the program.
#include "command_line.h"

int main(int argc, char** argv) { return heed::cli::run_command_line(argc, argv); }
