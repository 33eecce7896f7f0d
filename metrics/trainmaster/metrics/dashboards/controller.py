"""The inside of the manager, for whoever tunes it: from what one sees to the option that changes it."""

from __future__ import annotations

from typing import Final

from trainmaster.metrics import cache, configuration, controller, process, queue, rest_client
from trainmaster.metrics.dashboards.model import (
    QUERIES,
    Dashboard,
    Panel,
    Query,
    Row,
    quantiles,
    rates,
    waiting_keys,
)
from trainmaster.metrics.promql import CPU, MEMORY, OPEN_FILES, SAMPLES, aggregate

_QUEUES: Final = Row(
    "Work queues",
    (
        Panel(
            title="Keys in queues",
            description="Objects that wait for a worker. It may rise in a burst and has to fall again. If it stays up: "
            "look at the wait beside it, then at workers and requests below.",
            queries=(Query(waiting_keys(), "{{controller}}"),),
        ),
        Panel(
            title="Wait in queues",
            description="How long keys are ready before a worker takes them. Above a second users notice. If all "
            "workers are busy, see requests below; if these wait for their limit, "
            "clientConnection.qps and burst; if the event loop lags, give the manager CPU.",
            queries=quantiles(queue.QUEUE_DURATION, "controller"),
            unit="s",
            steps=((1, "yellow"), (60, "red")),
        ),
        Panel(
            title="Additions and delayed additions a second",
            description="Keys that became ready, and those that were added with a delay: after an error, or because "
            "something is due later. Many delayed ones with few errors are normal for jobs with deadlines.",
            queries=(
                Query(QUERIES.rate(queue.ADDS, "controller"), "{{controller}}"),
                Query(QUERIES.rate(queue.RETRIES, "controller"), "{{controller}} delayed"),
            ),
            unit="ops",
        ),
        Panel(
            title="Longest running reconcile",
            description="How long the oldest reconcile has been running. Above a minute a plugin does not return, or "
            "the API server does not answer: /debug/tasks of the manager shows where it stands.",
            queries=(Query(QUERIES.largest(queue.LONGEST_RUNNING, "controller"), "{{controller}}"),),
            unit="s",
            steps=((120, "red"),),
        ),
        Panel(
            title="Work per key",
            description="How long workers take for one key, waits for the API server included. Compare with the "
            "duration of requests below: what is more than those is CPU, of the manager or of plugins.",
            queries=quantiles(queue.WORK_DURATION, "controller"),
            unit="s",
        ),
        Panel(
            title="Busy workers",
            description="Which part of the workers is busy. At 100 % keys wait: for the API server, for CPU, "
            "or for the limit of requests. Their number is found, unless controller.groupKindConcurrency says it.",
            queries=(
                Query(
                    QUERIES.total(controller.ACTIVE_WORKERS, "controller")
                    / (QUERIES.total(controller.MAX_CONCURRENT, "controller") > 0),
                    "{{controller}}",
                ),
            ),
            unit="percentunit",
            steps=((0.9, "yellow"),),
        ),
    ),
)

_RECONCILES: Final = Row(
    "Reconciles",
    (
        Panel(
            title="Reconciles a second",
            description="By result. A settled job costs none besides the periodic one. Many requeues without errors: "
            "something is not ready yet, and the condition of the job says what.",
            queries=rates(controller.RECONCILES, "controller", "result"),
            unit="ops",
        ),
        Panel(
            title="Reconcile time",
            description="The median says what a reconcile costs, the 99th percentile what the slowest jobs wait for.",
            queries=quantiles(controller.DURATION, "controller"),
            unit="s",
            steps=((1, "yellow"),),
        ),
        Panel(
            title="Errors a second",
            description="Reconciles that failed, by kind of failure. Errors are tried again, each time later; terminal "
            "ones are not; a panic is a defect of the manager or of a plugin. The log has each, with the job.",
            queries=(
                Query(QUERIES.rate(controller.ERRORS, "controller"), "{{controller}} error"),
                Query(QUERIES.rate(controller.TERMINAL_ERRORS, "controller"), "{{controller}} terminal"),
                Query(QUERIES.rate(controller.PANICS, "controller"), "{{controller}} panic"),
                Query(QUERIES.rate(controller.TIMEOUTS, "controller"), "{{controller}} timeout"),
            ),
            unit="ops",
        ),
    ),
)

_REQUESTS: Final = Row(
    "Requests to the API server",
    (
        Panel(
            title="Requests a second",
            description="By method and code. 409 is a conflict, which is tried again; 429 an API server that asks for "
            "less; 5xx and <error> an API server, or a network, in trouble.",
            queries=rates(rest_client.REQUESTS, "method", "code"),
            unit="reqps",
        ),
        Panel(
            title="Request duration",
            description="How long the API server took, watches excluded. What is slow here makes reconciles slow: "
            "look at the API server and at its priority levels, not at the manager.",
            queries=quantiles(rest_client.REQUEST_DURATION, "verb"),
            unit="s",
            steps=((1, "yellow"),),
        ),
        Panel(
            title="Wait for the client's own limit",
            description="How long requests waited before they were sent, because of clientConnection.qps and burst. "
            "Raise these if it is more than a moment and the API server answers fast; 0 means no limit.",
            queries=quantiles(rest_client.RATE_LIMITER_DURATION, "verb"),
            unit="s",
            steps=((1, "yellow"),),
        ),
        Panel(
            title="Requests sent again a second",
            description="By what the first one got. A few after a restart of the API server are normal. What is "
            "refused without Retry-After is not sent again: the reconcile fails, and comes again later.",
            queries=rates(rest_client.RETRIES, "code"),
            unit="reqps",
        ),
        Panel(
            title="Open connections",
            description="Of each pool. Those of watches are one for each kind and namespace that is read; those of "
            "requests are bounded by the workers.",
            queries=(Query(QUERIES.total(rest_client.CONNECTIONS, "pool", "pod"), "{{pod}} {{pool}}"),),
        ),
        Panel(
            title="Bytes a second",
            description="Bodies of requests and of answers, watches excluded. A large stream of answers without "
            "restarts of the manager is one of lists: look at snapshots below.",
            queries=(
                Query(QUERIES.sum_rate(rest_client.REQUEST_SIZE, "pod"), "{{pod}} sent"),
                Query(QUERIES.sum_rate(rest_client.RESPONSE_SIZE, "pod"), "{{pod}} received"),
            ),
            unit="Bps",
        ),
    ),
)

_CACHES: Final = Row(
    "Caches",
    (
        Panel(
            title="Cached objects",
            description="By kind. They are what the manager's memory follows: where there are many of a kind that is "
            "not of training, limit the namespaces by watchNamespaces.",
            queries=(Query(QUERIES.largest(cache.OBJECTS, "resource"), "{{resource}}"),),
        ),
        Panel(
            title="Size of caches",
            description="The objects of each kind as they were read. The memory of the manager is several times that.",
            queries=(Query(QUERIES.largest(cache.BYTES, "resource"), "{{resource}}"),),
            unit="bytes",
            is_stacked=True,
        ),
        Panel(
            title="Watch events a second",
            description="What the caches hear of. Much of a kind while nothing is submitted: somebody rewrites "
            "objects all the time; the audit log of the API server says who.",
            queries=rates(cache.EVENTS, "resource"),
            unit="ops",
        ),
        Panel(
            title="Watches that ended, a second",
            width=6,
            description="By cause. `ended` is normal every few minutes; silent, broken and refused tell of the network "
            "or the API server, denied of missing rights, expired of an API server that compacts often.",
            queries=rates(cache.RESTARTS, "cause"),
            unit="ops",
        ),
        Panel(
            title="Snapshots a second",
            width=6,
            description="Whole lists, by how they were taken. After the start there should be none: each costs the "
            "API server all objects of the kind.",
            queries=rates(cache.SNAPSHOTS, "resource", "method"),
            unit="ops",
        ),
        Panel(
            title="Age of caches",
            width=6,
            description="Seconds since a cache heard of the server last. Servers send bookmarks about once a minute; "
            "what is older for long stands still: the manager acts on what was then. It is opened anew by itself.",
            queries=(Query(QUERIES.largest(cache.AGE, "resource"), "{{resource}}"),),
            unit="s",
            steps=((300, "red"),),
        ),
        Panel(
            title="Caches that are not filled",
            width=6,
            description="Kinds of which a manager has not seen a first snapshot; nothing is reconciled meanwhile. If "
            "it stays: the log of the pod says what the API server answered, mostly that rights are missing.",
            queries=(
                Query(aggregate("count", QUERIES.series(cache.SYNCED) < 1).or_zero(), "not filled"),
            ),
            steps=((1, "red"),),
        ),
    ),
)  # fmt: skip

_PROCESS: Final = Row(
    "Process",
    (
        Panel(
            title="Leader",
            description="1 for the pod that writes. Each step is a change of leader: after a deployment one is normal; "
            "often means that leases cannot be renewed in time, because the API server or the pod is too slow.",
            queries=(Query(QUERIES.largest(controller.MASTER_STATUS, "pod"), "{{pod}}"),),
        ),
        Panel(
            title="CPU",
            description="Cores. One is all that a manager can use besides TLS and compression: at 0.9 it is the limit, "
            "and more workers do not help.",
            queries=rates(CPU, "pod"),
            steps=((0.9, "yellow"),),
        ),
        Panel(
            title="Memory",
            description="Resident memory. It follows the cached objects; if it grows while these do not, "
            "/debug/cache of the manager shows what is held.",
            queries=(Query(QUERIES.largest(MEMORY, "pod"), "{{pod}}"),),
            unit="bytes",
        ),
        Panel(
            title="Lag of the event loop",
            description="How much later than due the manager does things. Above 0.1 s something blocks it, mostly a "
            "plugin or too little CPU; the log names what ran. Near the renewal of the lease it loses that.",
            queries=quantiles(process.LOOP_LAG, "pod"),
            unit="s",
            steps=((0.1, "yellow"), (1, "red")),
        ),
        Panel(
            title="Pauses of the garbage collector",
            description="99th percentile by generation. The oldest generation grows with the cached objects.",
            queries=(
                Query(
                    QUERIES.quantile(0.99, process.GC_PAUSES, "generation").observed(),
                    "generation {{generation}}",
                ),
            ),
            unit="s",
            steps=((0.1, "yellow"),),
        ),
        Panel(
            title="Tasks and open files",
            description="Both follow the kinds that are watched and the jobs in work. Steady growth is a leak: please "
            "report it with a support bundle.",
            queries=(
                Query(QUERIES.largest(process.TASKS, "pod"), "{{pod}} tasks"),
                Query(QUERIES.largest(OPEN_FILES, "pod"), "{{pod}} files"),
            ),
        ),
        Panel(
            title="Series of metrics",
            width=12,
            description="What Prometheus stores of each manager. It is bounded, however many jobs there are.",
            queries=(Query(QUERIES.largest(SAMPLES, "pod"), "{{pod}}"),),
        ),
        Panel(
            title="Configuration in effect",
            width=12,
            description="0: the file that is mounted now cannot be used, and values of an older one are in effect. The "
            "log of the pod says which line is wrong.",
            queries=(Query(QUERIES.smallest(configuration.LAST_RELOAD_SUCCESSFUL, "pod"), "{{pod}}"),),
        ),
    ),
)

CONTROLLER: Final = Dashboard(
    uid="trainmaster-controller",
    title="Trainmaster / Controller",
    description="For whoever tunes the manager: queues, workers, requests, caches and the process; see docs/tuning.md.",
    rows=(_QUEUES, _RECONCILES, _REQUESTS, _CACHES, _PROCESS),
)
