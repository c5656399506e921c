/*
 * PufferLib's Connect Four for two players: its board and its rules, without its opponent.
 *
 * `play_column` places a piece of the player whose turn it is; the exports below say how it stands.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "connect4/connect4.h"

#define EXPORT(name) __attribute__((export_name(name)))

static uint64_t pieces, other_pieces; /* of the player whose turn it is, and of the other one */

EXPORT("can_play") int can_play(int column) {
    return column >= 0 && column < COLUMNS && !invalid_move(column, pieces | other_pieces);
}

EXPORT("play_column") void play_column(int column) {
    uint64_t placed = play(column, pieces | other_pieces, other_pieces);
    pieces = other_pieces;
    other_pieces = placed;
}

/* Whether the player who moved last has won. */
EXPORT("has_won") int has_won(void) { return won(other_pieces); }

EXPORT("is_full") int is_full(void) { return draw(pieces | other_pieces); }
