// rte_mempool below an mbuf pool: raw objects, so that no mbuf is reset, and the cache looked up once.

#include <stdio.h>

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "peer.h"

enum {
	OBJECTS = 16383,
	CACHE = RTE_MEMPOOL_CACHE_MAX_SIZE, // 512
	AWAY = 2048, // how many the "beyond" row has out at once: four caches
};

static __rte_always_inline double
in_cache(struct rte_mempool *pool, struct rte_mempool_cache *cache, unsigned n, uint64_t cycles)
{
	void *objects[BULK_MAX];
	uint64_t rounds = 0, start = rte_rdtsc_precise(), now;
	do {
		for (int i = 0; i < 1024; i++) {
			if (rte_mempool_generic_get(pool, objects, n, cache) != 0)
				return -1;
			rte_mempool_generic_put(pool, objects, n, cache);
		}
		rounds += 1024;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return ns_per(now - start, rounds * n);
}

static __rte_always_inline double
beyond_cache(struct rte_mempool *pool, struct rte_mempool_cache *cache, unsigned n, uint64_t cycles)
{
	static void *objects[AWAY];
	uint64_t rounds = 0, start = rte_rdtsc_precise(), now;
	do {
		for (unsigned i = 0; i < AWAY; i += n)
			if (rte_mempool_generic_get(pool, objects + i, n, cache) != 0)
				return -1;
		for (unsigned i = 0; i < AWAY; i += n)
			rte_mempool_generic_put(pool, objects + i, n, cache);
		rounds++;
		now = rte_rdtsc_precise();
	} while (now - start < cycles);
	return ns_per(now - start, rounds * AWAY);
}

static int run(const struct ask *ask, int beyond, struct answer *answer)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create("pool", OBJECTS, CACHE, 0,
		RTE_MBUF_DEFAULT_BUF_SIZE, rte_socket_id());
	if (pool == NULL)
		return -1;
	struct rte_mempool_cache *cache = rte_mempool_default_cache(pool, rte_lcore_id());
	double value = -1;
	for (int warm = 1; warm >= 0; warm--) {
		uint64_t cycles = cycles_of(warm ? ask->seconds / 10 : ask->seconds);
		if (!beyond && ask->bulk == 1)
			value = in_cache(pool, cache, 1, cycles);
		else if (!beyond && ask->bulk == 32)
			value = in_cache(pool, cache, 32, cycles);
		else if (beyond && ask->bulk == 32)
			value = beyond_cache(pool, cache, 32, cycles);
	}
	answer->value = value;
	answer->what = "rte_mempool";
	answer->memory = pool;
	snprintf(answer->detail, sizeof(answer->detail), "\"slots\":%d,\"cache\":%d", OBJECTS, CACHE);
	return value > 0 ? 0 : -1;
}

int pool_in_cache(const struct ask *ask, struct answer *answer)
{
	return run(ask, 0, answer);
}

int pool_beyond_cache(const struct ask *ask, struct answer *answer)
{
	return run(ask, 1, answer);
}
