#define GAME_NAME "breakout_no_velocity"
#define GAME_HIDDEN(number) ((number) == 4 || (number) == 5)
#include "breakout.c"
