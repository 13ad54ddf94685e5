/* The other end of a `shm` port in C: echoes every frame of every queue.
 *
 *   cc -O2 -o shm_peer shm_peer.c && ./shm_peer /dev/shm/lr
 *
 * It is the client: a server (`linerate l2fwd shm:/dev/shm/lr ...`) has made the file. In a guest
 * the file is /sys/bus/pci/devices/ADDRESS/resource2 of an ivshmem-plain device. The layout, with
 * the reasons, is in docs/shm.md, the same in Rust in src/shm/layout/. For little endian.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 8, ORDER = 12, RINGS = 16, QUEUES = 20, SLOTS = 24, SLOT_BYTES = 28 };
enum { SERVER = 128, CLIENT = 256, HEADS = 512, HEAD_STRIDE = 128 };
enum { GENERATION = 0, STATE = 4, HEARTBEAT = 8, PROCESS = 12, BOOT_ID = 16, NAME = 32 };

static uint8_t *file;
static uint32_t slots, slot_bytes;

static uint32_t load(size_t at) {
    return __atomic_load_n((uint32_t *)(file + at), __ATOMIC_ACQUIRE);
}
static void store(size_t at, uint32_t value) {
    __atomic_store_n((uint32_t *)(file + at), value, __ATOMIC_RELEASE);
}

struct ring { size_t head_at, slots_at; uint32_t next; /* number of the next frame */ };

static size_t slot(const struct ring *r) {
    return r->slots_at + (size_t)(r->next & (slots - 1)) * slot_bytes;
}
/* The upper half of a slot's word: the lap round the ring, from 1 on. */
static uint32_t lap(const struct ring *r) { return (r->next / slots + 1) << 16; }
/* The length of the next frame; 0 where there is none, or its word is of another lap. */
static uint32_t length(const struct ring *r) {
    uint32_t length = load(slot(r)) ^ lap(r);
    return length > 0xffff ? 0 : length;
}

static struct ring ring(size_t rings_at, unsigned number) {
    size_t bytes = (size_t)slots * slot_bytes, head_at = HEADS + HEAD_STRIDE * number;
    struct ring r = { head_at, rings_at + number * bytes, load(head_at) };
    return r;
}

/* Goes on behind the frames that are there: where the sender before us was, or where somebody else
 * wrote over what we sent. Takes back what lies beyond, of a burst that was not finished. Returns
 * the peer's head. */
static uint32_t take_up(struct ring *r) {
    uint32_t head = r->next = load(r->head_at);
    while (r->next - head < slots && length(r)) r->next++;
    for (struct ring free = *r; free.next - head < slots; free.next++) store(slot(&free), 0);
    return head;
}
/* Whether the peer can go on: its next frame is where we wrote it. */
static int is_sound(const struct ring *r) {
    struct ring peer = *r;
    peer.next = load(r->head_at);
    return r->next == peer.next || (r->next - peer.next <= slots && length(&peer));
}

int main(int argc, char **argv) {
    struct stat found;
    int fd = argc == 2 ? open(argv[1], O_RDWR) : -1;
    if (fd < 0 || fstat(fd, &found)) return perror("usage: shm_peer FILE"), 1;
    file = mmap(NULL, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) return perror("mmap"), 1;
    size_t rings_at = load(RINGS);
    unsigned queues = load(QUEUES);
    slots = load(SLOTS), slot_bytes = load(SLOT_BYTES);
    if (memcmp(file, "LRSHMEM\n", 8) || load(VERSION) != 1 || load(ORDER) != 0x01020304
        || !queues || queues > 64 || !slots || slots > 32768 || slots & (slots - 1)
        || slot_bytes < 64 || slot_bytes % 64 || slot_bytes > 65600
        || rings_at + 2ull * queues * slots * slot_bytes > (uint64_t)found.st_size)
        return fprintf(stderr, "%s is no file of this layout\n", argv[1]), 1;

    struct ring to_us[64], from_us[64];
    uint32_t peers_head[64];
    for (unsigned q = 0; q < queues; q++) {
        to_us[q] = ring(rings_at, 2 * q), from_us[q] = ring(rings_at, 2 * q + 1);
        peers_head[q] = take_up(&from_us[q]);
    }
    memset(file + CLIENT + BOOT_ID, 0, 16); /* we hold no lock: our heartbeat shows that we live */
    strcpy((char *)file + CLIENT + NAME, "shm_peer.c");
    store(CLIENT + PROCESS, getpid());
    store(CLIENT + GENERATION, load(CLIENT + GENERATION) + 1);
    store(CLIENT + STATE, 1);

    for (uint32_t rounds = 0, beats = 0;; rounds++) {
        int beat = rounds % 4096 == 0;
        if (beat) store(CLIENT + HEARTBEAT, beats++), usleep(1);
        for (unsigned q = 0; q < queues; q++) {
            struct ring *in = &to_us[q], *out = &from_us[q];
            uint32_t len = length(in);
            if (beat && !is_sound(out)) peers_head[q] = take_up(out);
            if (out->next - peers_head[q] >= slots) peers_head[q] = load(out->head_at);
            if (!len || len > slot_bytes - 4 || out->next - peers_head[q] >= slots) continue;
            memcpy(file + slot(out) + 4, file + slot(in) + 4, len);
            store(slot(out), lap(out) | len); /* the frame is there */
            out->next++;
            store(in->head_at, ++in->next); /* and its slot is free */
        }
    }
}
