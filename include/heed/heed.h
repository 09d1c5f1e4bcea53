// heed in the order in which it builds up; files are apart, in heed/io.h and heed/modules_io.h.
#pragma once

#include "heed/attention.h"  // options, forward
#include "heed/backward.h"   // gradients
#include "heed/error.h"      // what every function throws
#include "heed/inspect.h"    // statistics of rows, weights on demand
#include "heed/jvp.h"        // forward-mode derivative
#include "heed/kv_cache.h"   // keys and values of sequences that grow, decoding
#include "heed/merge.h"      // attention over parts of the keys, put together
#include "heed/modules.h"    // layers with parameters
#include "heed/runtime.h"    // executors, instruction sets
#include "heed/tensor.h"     // views of memory
