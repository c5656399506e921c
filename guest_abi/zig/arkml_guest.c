/* The part of a guest in Zig that ../c/arkml_guest.h has; GAME is defined in Zig. */
#define GAME_ELSEWHERE
#include "arkml_guest.h"
