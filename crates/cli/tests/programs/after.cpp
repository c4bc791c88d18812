// after.cpp: exceptions, virtual calls, containers, threads; results must not depend on call-outs (after_optimisation.rs). Ends with status 7.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};
struct Square : Shape {
    explicit Square(double side) : side_(side) {}
    double area() const override { return side_ * side_; }
    double side_;
};
struct Ring : Shape {
    Ring(double outer, double inner) : outer_(outer), inner_(inner) {}
    double area() const override {
        if (inner_ > outer_) throw std::domain_error("inside out");
        return 3 * (outer_ * outer_ - inner_ * inner_);
    }
    double outer_, inner_;
};

struct Guard {
    explicit Guard(int &count) : count_(count) {}
    ~Guard() { count_++; }
    int &count_;
};

double shapes() {
    std::vector<std::unique_ptr<Shape>> all;
    for (int i = 0; i < 100; i++) {
        if (i % 3 == 0) all.push_back(std::make_unique<Square>(i));
        else all.push_back(std::make_unique<Ring>(50, i));
    }
    double sum = 0;
    int thrown = 0, left = 0;
    for (const auto &shape : all) {
        try {
            Guard guard(left);
            sum += shape->area();
        } catch (const std::domain_error &error) {
            thrown += static_cast<int>(std::string(error.what()).size());
        }
    }
    return sum + thrown * 1000 + left;
}

long words() {
    std::map<std::string, long> counts;
    const std::string text = "a rose is a rose is a rose and numa is not uma";
    std::string word;
    for (char letter : text + " ") {
        if (letter != ' ') word += letter;
        else counts[word] += static_cast<long>(word.size()), word.clear();
    }
    long sum = 0;
    for (const auto &[name, count] : counts) sum = sum * 7 + count + name.front();
    return sum;
}

long threads() {
    std::mutex lock;
    std::vector<long> found;
    std::vector<std::thread> all;
    for (int i = 0; i < 4; i++) {
        all.emplace_back([&, i] {
            std::vector<long> mine(1000);
            std::iota(mine.begin(), mine.end(), i);
            const long sum = std::accumulate(mine.begin(), mine.end(), 0L);
            const std::lock_guard<std::mutex> guard(lock);
            found.push_back(sum);
        });
    }
    for (auto &thread : all) thread.join();
    std::sort(found.begin(), found.end());
    return std::accumulate(found.begin(), found.end(), 0L, [](long left, long right) { return left * 3 + right; });
}

} // namespace

int main() {
    std::printf("shapes %.9g\nwords %ld\nthreads %ld\n", shapes(), words(), threads());
    return 7;
}
