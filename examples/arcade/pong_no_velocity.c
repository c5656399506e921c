#define GAME_NAME "pong_no_velocity"
#define GAME_HIDDEN(number) ((number) == 4 || (number) == 5)
#include "pong.c"
