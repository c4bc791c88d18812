// k-median of one chunk of points by local search on the facility location problem.
//
// Published: Guha, Mishra, Motwani, O'Callaghan, "Clustering Data Streams", FOCS 2000; O'Callaghan, Mishra, Meyerson, Guha, Motwani,
// "Streaming-Data Algorithms for High-Quality Clustering", ICDE 2002. Opening a centre costs z; serving a point costs its weighted
// squared distance. A binary search finds the z at which the local optimum has a number of centres between kmin and kmax.
//
// Every sum is taken per slice of a fixed number of points and then in the order of the slices: the result does not depend on
// the number of threads.
#ifndef STREAMCLUSTER_LOCAL_SEARCH_HPP
#define STREAMCLUSTER_LOCAL_SEARCH_HPP

#include "points.hpp"
#include "team.hpp"

#include <string>
#include <vector>

struct SearchLimits {
    std::size_t kmin, kmax; // wanted number of centres
    std::size_t candidates; // centres tried per round
    std::size_t rounds;     // rounds per value of z
};

class LocalSearch {
  public:
    // Works on `points`, whose num may not exceed `capacity` (the number of elements of points.p).
    LocalSearch(Team &team, Points &points, std::size_t capacity, const SearchLimits &limits, std::uint64_t seed);
    LocalSearch(const LocalSearch &) = delete;
    LocalSearch &operator=(const LocalSearch &) = delete;
    ~LocalSearch();

    // Assigns every point to a centre. Reads points.p[].coord and weight, writes assign and cost.
    void cluster();
    // Indices of the open centres, ascending.
    std::vector<std::size_t> centers() const;
    // Recomputes every assignment and cost by another route, in double precision; empty when all hold, else what is wrong.
    std::string verify();
    // Candidates evaluated so far: the unit of work.
    std::uint64_t evaluations() const { return evaluations_; }

  private:
    static constexpr std::size_t kSlicePoints = 1024;

    std::size_t slices() const { return (points_.num + kSlicePoints - 1) / kSlicePoints; }
    template <class Visit> void each_slice(const Visit &visit);
    double sum_of_slices() const;
    void open_alone(std::size_t x);
    void open(std::size_t x);
    void speedy();
    double improve();
    double gain(std::size_t x);
    void evaluate(std::size_t slice, std::size_t x);
    void switch_points(std::size_t slice, std::size_t x, const std::vector<char> &closes);

    Team &team_;
    Points &points_;
    SearchLimits limits_;
    rng rng_;
    double z_ = 0;    // cost of a centre
    double cost_ = 0; // cost of the points and centres
    std::uint64_t evaluations_ = 0;
    std::vector<std::size_t> open_; // the open centres in the order of opening
    // Shared by all threads, one element per point.
    char *is_center_;
    char *switch_membership_; // the candidate under evaluation would serve the point cheaper
    int *center_table_;       // of a centre: its position in open_
    // Per slice: for each centre what closing it would cost, and last what the switching points would save.
    std::vector<double> work_mem_;
    std::size_t stride_ = 0; // of a slice in work_mem_
};

#endif
