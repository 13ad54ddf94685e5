/* The other end of a memif port by libmemif: sends back what comes, queue by queue.
 *
 *   cc -O2 -o peer peer.c -lmemif
 *   ./peer master|slave SOCKET QUEUES copy|swap polling|interrupt|sweep
 *
 * copy: into buffers of the ring back. swap: the buffers themselves go back, which a slave can.
 * polling: asks for no notifications. interrupt: sleeps until it is notified, and for ever if not.
 * sweep: as interrupt, and looks without being asked every 10 ms. libmemif needs that under load:
 * memif_rx_burst() clears the eventfd after it has looked at the ring, and with it a notification
 * that came in between.
 */
#include <libmemif.h>
#include <stdio.h>
#include <string.h>

enum { RING = 1024, BUFFER = 2048, MOST_QUEUES = 8 };

static int is_slave, swaps, polls, sweeps, queues, connected;
static memif_conn_handle_t conn;

static int failed(const char *what, int error) {
    fprintf(stderr, "%s: %s\n", what, memif_strerror(error));
    return error;
}

/* Sends back what waits on a queue; how much it was, or less than 0. */
static int echo(uint16_t queue) {
    static memif_buffer_t in[RING], out[RING];
    uint16_t count = 0, done = 0, room, sent;
    int error = memif_rx_burst(conn, queue, in, RING, &count);
    if (error && error != MEMIF_ERR_NOBUF) return -failed("memif_rx_burst", error);
    while (done < count) {
        memif_buffer_t *back = swaps ? in + done : out;
        error = swaps ? memif_buffer_enq_tx(conn, queue, back, count - done, &room)
                      : memif_buffer_alloc(conn, queue, back, count - done, &room, BUFFER);
        if (error && error != MEMIF_ERR_NOBUF_RING) return -failed("no buffers", error);
        for (int i = 0; i < room && !swaps; i++) {
            memcpy(out[i].data, in[done + i].data, in[done + i].len);
            out[i].len = in[done + i].len, out[i].flags = in[done + i].flags;
        }
        if ((error = memif_refill_queue(conn, queue, room, 0))) return -failed("refill", error);
        if ((error = memif_tx_burst(conn, queue, back, room, &sent))) return -failed("tx", error);
        done += room;
    }
    return count;
}

static int on_interrupt(memif_conn_handle_t c, void *context, uint16_t queue) {
    (void)c, (void)context;
    return echo(queue) < 0;
}

static int on_connect(memif_conn_handle_t c, void *context) {
    (void)context;
    for (int queue = 0; queue < queues; queue++) {
        int error = memif_refill_queue(c, queue, -1, 0);
        if (error) return failed("memif_refill_queue", error);
        if (polls) memif_set_rx_mode(c, MEMIF_RX_MODE_POLLING, queue);
    }
    connected = 1;
    return puts("connected"), fflush(stdout), 0;
}

static int on_disconnect(memif_conn_handle_t c, void *context) {
    (void)c, (void)context;
    connected = 0;
    return puts("disconnected"), fflush(stdout), 0;
}

int main(int argc, char **argv) {
    memif_socket_args_t at = { .app_name = "libmemif peer" };
    memif_conn_args_t wanted = { .interface_name = "echo", .secret = "told" };
    int error;
    if (argc != 6 || sscanf(argv[3], "%d", &queues) != 1 || queues < 1 || queues > MOST_QUEUES)
        return fprintf(stderr, "usage: peer ROLE SOCKET QUEUES copy|swap MODE\n"), 1;
    is_slave = !strcmp(argv[1], "slave"), swaps = !strcmp(argv[4], "swap");
    polls = !strcmp(argv[5], "polling"), sweeps = !strcmp(argv[5], "sweep");
    snprintf(at.path, sizeof at.path, "%s", argv[2]);
    if (is_slave) {
        at.connection_request_timer.it_value.tv_nsec = 20000000;
        at.connection_request_timer.it_interval.tv_nsec = 20000000;
    }
    memif_socket_handle_t sock;
    if ((error = memif_create_socket(&sock, &at, NULL))) return failed("socket", error);
    wanted.socket = sock, wanted.is_master = !is_slave;
    wanted.num_s2m_rings = wanted.num_m2s_rings = queues;
    wanted.buffer_size = BUFFER, wanted.log2_ring_size = 10;
    error = memif_create(&conn, &wanted, on_connect, on_disconnect, on_interrupt, NULL);
    if (error) return failed("memif_create", error);
    for (unsigned round = 0;; round++) {
        /* While it polls, messages need a look now and then only. */
        if (!polls || !connected || round % 256 == 0) {
            error = memif_poll_event(sock, polls && connected ? 0 : sweeps || polls ? 10 : -1);
            if (error) return failed("memif_poll_event", error);
        }
        for (int queue = 0; queue < queues && connected && (polls || sweeps); queue++)
            if (echo(queue) < 0) return 1;
    }
}
