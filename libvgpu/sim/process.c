/* process.c - who uses the simulated cards: registration, and the sweep of the dead. */
#define _GNU_SOURCE
#include "gaia_pages.h"
#include "state.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Programs in several containers share the cards, and a pid means something in its own pid namespace
 * only. So each process notes its namespace, and holds a lock on a byte of the state file for as long as
 * it lives: a POSIX lock, which no child inherits and which the kernel takes back however the process
 * ends. Whoever asks for the holder from elsewhere is told its pid as he sees it. */
static uint64_t space_here(void) {
    static sim_word known;
    uint64_t space = atomic_load(&known);
    struct stat st;
    if (space == 0 && stat("/proc/self/ns/pid", &st) == 0) {
        space = (uint64_t)st.st_ino;
        atomic_store(&known, space);
    }
    return space;
}

static bool elsewhere(const struct sim_process *process) {
    uint64_t space = atomic_load(&process->space), here = space_here();
    return space != 0 && here != 0 && space != here;
}

static uint64_t index_of(const struct sim_process *process) {
    return (uint64_t)(process - sim_state->process);
}

/* Return whether a process of another namespace lives, and its pid as seen from here (0 = not seen). */
static bool holder(const struct sim_process *process, unsigned *pid) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SIM_PLACE_BYTE, .l_len = 1};
    lock.l_start += (off_t)index_of(process);
    *pid = 0;
    if (sim_state_file < 0 || fcntl(sim_state_file, F_GETLK, &lock) != 0)
        return true; /* one that cannot be asked about is rather kept than given twice */
    if (lock.l_type == F_UNLCK)
        return false;
    *pid = lock.l_pid > 0 ? (unsigned)lock.l_pid : 0;
    return true;
}

/* Two containers have programs of one pid that started in one tick: the word tells them apart all the
 * same. A machine would have to be up for 497 days before a start needs more than 32 bits. */
static uint64_t owner_word(uint64_t start, uint64_t space) {
    return GAIA_OWNER((uint32_t)getpid(), (start & UINT32_MAX) | (space & 1023) << 32);
}

struct life {
    uint64_t start; /* field 22 of /proc/PID/stat, clock ticks since boot */
    uint64_t stack; /* field 28: where the stack starts; changes with exec */
    long threads;
    char state;
};

static bool life_of(uint32_t pid, struct life *out) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = 0;
    char *p = strrchr(text, ')'); /* a program's name may hold anything, parentheses too */
    if (!p || p[1] != ' ')
        return false;
    p += 2;
    out->state = *p;
    out->stack = 0;
    for (int field = 3; *p; field++) {
        if (field == 20)
            out->threads = strtol(p, NULL, 10);
        if (field == 22)
            out->start = strtoull(p, NULL, 10);
        if (field == 28) {
            out->stack = strtoull(p, NULL, 10);
            return true;
        }
        p = strchr(p, ' ');
        if (!p)
            return false;
        p++;
    }
    return false;
}

/* A zombie with other threads is a program whose main thread ended; with none it is dead. What one
 * cannot look at (EPERM and no /proc) counts as alive: memory is rather kept than given twice. */
static bool alive(const struct sim_process *process) {
    uint64_t owner = atomic_load(&process->owner), image = atomic_load(&process->image);
    struct life life;
    unsigned pid;
    if (elsewhere(process))
        return holder(process, &pid);
    if (kill((pid_t)GAIA_OWNER_PID(owner), 0) != 0 && errno == ESRCH)
        return false;
    if (!life_of(GAIA_OWNER_PID(owner), &life))
        return kill((pid_t)GAIA_OWNER_PID(owner), 0) == 0 || errno != ESRCH;
    if ((life.start & UINT32_MAX) != (GAIA_OWNER_START(owner) & UINT32_MAX) || life.state == 'X' ||
        (life.state == 'Z' && life.threads <= 1))
        return false;
    return image == 0 || life.stack < 4096 || life.state == 'Z' || life.stack == image;
}

bool sim_anybody(const struct sim_state *state) {
    for (uint64_t i = 0; i < SIM_PROCESSES && i < atomic_load(&state->high_water); i++)
        if (atomic_load(&state->process[i].owner) && alive(&state->process[i]))
            return true;
    return false;
}

void sim_totals(void) {
    uint64_t sum[SIM_CARDS] = {0};
    for (unsigned i = 0; i < SIM_PROCESSES; i++)
        if (atomic_load(&sim_state->process[i].owner))
            for (unsigned c = 0; c < SIM_CARDS; c++)
                sum[c] += atomic_load(&sim_state->process[i].card[c].used);
    for (unsigned c = 0; c < SIM_CARDS; c++)
        atomic_store(&sim_state->card[c].used, sum[c]);
}

void sim_process_empty(struct sim_process *process) {
    for (unsigned c = 0; c < SIM_CARDS; c++) {
        struct sim_process_card *mine = &process->card[c];
        uint64_t used = atomic_load(&mine->used);
        atomic_fetch_sub(&sim_state->card[c].used, used);
        atomic_store(&mine->used, 0);
        atomic_store(&mine->context, 0);
        atomic_store(&mine->contexts, 0);
        atomic_store(&mine->launches, 0);
    }
    sim_timelines_drop(process);
}

void sim_sweep(void) {
    uint64_t n = atomic_load(&sim_state->high_water);
    for (uint64_t i = 0; i < n && i < SIM_PROCESSES; i++) {
        struct sim_process *p = &sim_state->process[i];
        if (atomic_load(&p->owner) && !alive(p)) {
            sim_process_empty(p);
            atomic_store(&p->owner, 0);
        }
    }
    atomic_store(&sim_state->swept_ns, sim_now());
}

void sim_sweep_lightly(void) {
    uint64_t n = atomic_load(&sim_state->high_water);
    bool due = sim_now() - atomic_load(&sim_state->swept_ns) > SIM_LOOK_NS;
    for (uint64_t i = 0; i < n && i < SIM_PROCESSES && !due; i++) {
        const struct sim_process *p = &sim_state->process[i];
        uint64_t owner = atomic_load(&p->owner);
        due = owner &&
              (elsewhere(p) ? !alive(p) : kill((pid_t)GAIA_OWNER_PID(owner), 0) != 0 && errno == ESRCH);
    }
    if (!due)
        return;
    sim_lock();
    sim_sweep();
    sim_unlock();
}

void sim_sweep_if_due(void) {
    if (sim_now() - atomic_load(&sim_state->swept_ns) <= SIM_LOOK_NS)
        return;
    sim_lock();
    if (sim_now() - atomic_load(&sim_state->swept_ns) > SIM_LOOK_NS)
        sim_sweep();
    sim_unlock();
}

struct sim_process *sim_process_take(void) {
    struct life life;
    if (!life_of((uint32_t)getpid(), &life))
        return NULL;
    uint64_t space = space_here(), owner = owner_word(life.start, space);
    sim_sweep();
    for (unsigned i = 0; i < SIM_PROCESSES; i++) {
        struct sim_process *p = &sim_state->process[i];
        if (atomic_load(&p->owner))
            continue;
        if (atomic_load(&sim_state->high_water) <= i)
            atomic_store(&sim_state->high_water, i + 1);
        struct flock lock = {
            .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SIM_PLACE_BYTE + i, .l_len = 1};
        if (fcntl(sim_state_file, F_SETLK, &lock) != 0)
            continue; /* its last owner is just ending */
        atomic_store(&p->image, life.stack < 4096 ? 0 : life.stack);
        atomic_store(&p->space, space);
        atomic_store(&p->owner, owner);
        return p;
    }
    return NULL;
}

bool sim_process_pid(uint64_t owner, unsigned *pid) {
    uint64_t n = atomic_load(&sim_state->high_water);
    *pid = GAIA_OWNER_PID(owner);
    if ((GAIA_OWNER_START(owner) >> 32) == (space_here() & 1023))
        return true;
    for (uint64_t i = 0; i < n && i < SIM_PROCESSES; i++)
        if (atomic_load(&sim_state->process[i].owner) == owner)
            return holder(&sim_state->process[i], pid) && *pid != 0;
    return false;
}
