/* What finding out who lives costs, and how long it takes, in a simulated group of a given size. */
#ifndef WEIR_SIM_MEMBERS_FIGURES_H
#define WEIR_SIM_MEMBERS_FIGURES_H

#include <stdint.h>

/* Prints a table, a row for each rate of loss: deaths one at a time; and half of all at once. */
void members_figures(uint32_t size, unsigned deaths);

#endif
