/* The interface of the library that is compiled: of nnlib 2.20, or with HEXAGON_NN_V1 the oldest one. */
#ifndef HEXAGON_ABI_H
#define HEXAGON_ABI_H

#pragma GCC visibility push(default)
#ifdef HEXAGON_NN_V1
#include "hexagon_nn_v1.h"
#else
#include "hexagon_nn.h"
#endif
#pragma GCC visibility pop

#endif
