#define GAME_NAME "cartpole_no_velocity"
#define GAME_HIDDEN(number) ((number) == 1 || (number) == 3)
#include "cartpole.c"
