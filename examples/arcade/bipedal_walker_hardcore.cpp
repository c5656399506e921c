#define HARDCORE
#include "bipedal_walker.cpp"
