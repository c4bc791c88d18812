/** One thread allocates and fills a table; four others read it again and again while they allocate, so that the collector runs. Usage: Table ROUNDS */
public final class Table {
    static final int CELLS = 1 << 20;
    static volatile long[] table;

    static final class Cell {
        final long value;

        Cell(long value) {
            this.value = value;
        }
    }

    static long read(int rounds) {
        long sum = 0;
        for (int round = 0; round < rounds; round++) {
            Cell[] kept = new Cell[1024];
            for (int at = 0; at < CELLS; at++) {
                sum += table[at];
                if (at % 64 == 0) {
                    kept[at / 64 % kept.length] = new Cell(sum);
                }
            }
            sum += kept[0].value;
        }
        return sum;
    }

    public static void main(String[] arguments) throws InterruptedException {
        int rounds = Integer.parseInt(arguments[0]);
        Thread owner = new Thread(() -> {
            long[] made = new long[CELLS];
            for (int at = 0; at < CELLS; at++) {
                made[at] = at * 31L;
            }
            table = made;
        }, "owner");
        owner.start();
        owner.join();
        long[] sums = new long[4];
        Thread[] readers = new Thread[sums.length];
        for (int reader = 0; reader < readers.length; reader++) {
            int mine = reader;
            readers[reader] = new Thread(() -> sums[mine] = read(rounds), "reader " + reader);
            readers[reader].start();
        }
        for (Thread reader : readers) {
            reader.join();
        }
        System.out.println(sums[0] == sums[3]);
    }
}
