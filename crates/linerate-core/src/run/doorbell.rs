//! Wakes an lcore that sleeps although its work arrives in memory rings.
