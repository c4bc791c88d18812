// One thread fills a shared buffer; four workers read it. Usage: table.js ROUNDS
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");

const CELLS = 1 << 20;

function read(table, rounds) {
    let sum = 0;
    for (let round = 0; round < rounds; round++) {
        const kept = new Array(1024);
        for (let at = 0; at < CELLS; at++) {
            sum += table[at];
            if (at % 64 === 0) kept[(at / 64) % kept.length] = { sum };
        }
        sum += kept[0].sum % 1;
    }
    return sum;
}

if (isMainThread) {
    const table = new Float64Array(new SharedArrayBuffer(CELLS * 8));
    table.forEach((_, at) => (table[at] = at * 31));
    const sums = [];
    for (let reader = 0; reader < 4; reader++) {
        const worker = new Worker(__filename, { workerData: { table, rounds: Number(process.argv[2]) } });
        worker.on("message", sum => {
            sums.push(sum);
            if (sums.length === 4) console.log(sums.every(one => one === sums[0]));
        });
    }
} else {
    parentPort.postMessage(read(workerData.table, workerData.rounds));
}
