/* register_test.c - places in `usage`: taken by compare-and-swap, given back when their owner is dead. */
#include "check.h"
#include "core/prim.h"
#include "core/register.h"
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static struct gaia_usage *usage;

static void clear(void) { memset((void *)usage, 0, sizeof *usage); }

static pid_t dead_child(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    return child;
}

static void parses_stat(void) {
    uint64_t start, threads;
    char state;
    CHECK(gaia_stat_parse("7 (a) b) (c) Z 1 2 3 4 -1 6 7 8 9 10 11 12 13 14 15 16 1 0 4242 99\n", &start,
                          &state, &threads));
    CHECK(state == 'Z' && threads == 1 && start == 4242);
    CHECK(!gaia_stat_parse("", &start, &state, &threads));
    CHECK(!gaia_stat_parse("7 (a", &start, &state, &threads));
    CHECK(!gaia_stat_parse("7 (a) R 1 2", &start, &state, &threads));
}

static void knows_the_dead(void) {
    struct gaia_identity self;
    gaia_identity_read(&self);
    CHECK(GAIA_OWNER_PID(self.owner) == (uint32_t)getpid());
    CHECK(!gaia_owner_dead(self.owner));
    CHECK(gaia_owner_dead(self.owner + 1)); /* this pid, another start */
    CHECK(gaia_owner_dead(GAIA_OWNER(dead_child(), 1)));
    CHECK(gaia_owner_dead(GAIA_OWNER(0, 5)));
    pid_t zombie = fork();
    if (zombie == 0)
        _exit(0);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT) == 0);
    char path[64], text[1024];
    bool missing;
    uint64_t start = 0, threads;
    char state;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)zombie);
    CHECK(gaia_prim_read(path, text, sizeof text, &missing) > 0);
    CHECK(gaia_stat_parse(text, &start, &state, &threads) && state == 'Z');
    CHECK(gaia_owner_dead(GAIA_OWNER(zombie, start)));
    waitpid(zombie, NULL, 0);
}

static void takes_free_and_dead_places(void) {
    struct gaia_identity self;
    uint32_t index;
    clear();
    CHECK(gaia_register(usage, &self, &index) && index == 0 && usage->high_water == 1);
    CHECK(usage->process[0].owner == self.owner);
    usage->process[0].owner = GAIA_OWNER(dead_child(), 1); /* a dead one, with bytes */
    usage->process[0].card[3].used = 77;
    usage->process[0].card[3].pending = 5;
    CHECK(gaia_register(usage, &self, &index) && index == 0);
    CHECK(usage->process[0].card[3].used == 0 && usage->process[0].card[3].pending == 0);
}

static void sweeps_only_the_dead(void) {
    struct gaia_identity self;
    uint32_t index;
    clear();
    CHECK(gaia_register(usage, &self, &index) && index == 0);
    usage->process[0].card[0].used = 1;
    usage->process[1].owner = GAIA_OWNER(dead_child(), 1);
    usage->process[1].card[0].used = 2;
    usage->process[2].card[0].used = 3; /* a free place with bytes: scribbled */
    usage->process[3].owner = GAIA_OWNER(dead_child(), 1);
    usage->process[3].reserved[GAIA_RESERVED_NAMESPACE] = self.name_space + 1; /* not ours to judge */
    usage->process[3].card[0].used = 4;
    usage->high_water = 4;
    CHECK(gaia_sweep(usage, &self) == 2);
    CHECK(usage->process[0].card[0].used == 1 && usage->process[0].owner == self.owner);
    CHECK(usage->process[1].card[0].used == 0 && usage->process[1].owner == 0);
    CHECK(usage->process[2].card[0].used == 0);
    CHECK(usage->process[3].card[0].used == 4);
    usage->high_water = UINT64_MAX; /* noise reaches no further than the page */
    gaia_sweep(usage, &self);
}

static void another_program_of_this_pid_takes_its_place(void) {
    struct gaia_identity self;
    uint32_t index;
    clear();
    CHECK(gaia_register(usage, &self, &index) && index == 0);
    CHECK(gaia_register(usage, &self, &index) &&
          index == 1); /* a second copy of the library: its own place */
    usage->process[0].card[0].used = 9;
    usage->process[0].reserved[GAIA_RESERVED_IMAGE] ^= 1; /* as if written before an exec */
    usage->process[1].reserved[GAIA_RESERVED_IMAGE] ^= 1;
    CHECK(gaia_register(usage, &self, &index) && index == 0);
    CHECK(usage->process[0].card[0].used == 0);
    CHECK(usage->process[1].owner == 0);
}

static void full_page_refuses(void) {
    struct gaia_identity self;
    uint32_t index;
    clear();
    gaia_identity_read(&self);
    for (int i = 0; i < GAIA_PROCESSES; i++) {
        usage->process[i].owner = self.owner;
        usage->process[i].reserved[GAIA_RESERVED_IMAGE] = self.image;
    }
    usage->high_water = GAIA_PROCESSES;
    CHECK(!gaia_register(usage, &self, &index));
}

/* Many processes register at once, some are killed in the middle: no place has two owners. */
static void races(void) {
    clear();
    for (int round = 0; round < 40; round++) {
        pid_t child[8];
        for (int i = 0; i < 8; i++)
            if ((child[i] = fork()) == 0) {
                struct gaia_identity self;
                uint32_t index;
                if (!gaia_register(usage, &self, &index))
                    _exit(1);
                usage->process[index].card[0].used += 1;
                pause();
                _exit(0);
            }
        for (int i = 0; i < 4; i++)
            kill(child[i], SIGKILL); /* at any instruction of the above */
        for (int i = 0; i < 4; i++)
            waitpid(child[i], NULL, 0);
        for (int i = 4; i < 8; i++) {
            int found = 0;
            while (found == 0) { /* registered in the end, exactly once */
                for (int p = 0; p < GAIA_PROCESSES; p++)
                    found += GAIA_OWNER_PID(usage->process[p].owner) == (uint32_t)child[i] &&
                             usage->process[p].card[0].used == 1;
                if (found == 0)
                    sched_yield();
            }
            CHECK(found == 1);
        }
        for (int i = 4; i < 8; i++) {
            kill(child[i], SIGKILL);
            waitpid(child[i], NULL, 0);
        }
    }
    struct gaia_identity self;
    gaia_identity_read(&self);
    gaia_sweep(usage, &self);
    for (int p = 0; p < GAIA_PROCESSES; p++)
        CHECK(usage->process[p].owner == 0 && usage->process[p].card[0].used == 0);
    CHECK(usage->high_water <= 16);
}

int main(void) {
    usage = mmap(NULL, sizeof *usage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(usage != MAP_FAILED);
    parses_stat();
    knows_the_dead();
    takes_free_and_dead_places();
    sweeps_only_the_dead();
    another_program_of_this_pid_takes_its_place();
    full_page_refuses();
    races();
    puts("register: good");
    return 0;
}
