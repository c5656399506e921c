#define CONTINUOUS
#include "lunar_lander.cpp"
